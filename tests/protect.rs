//! The page "Protect a log-in form and an API": its application, attacked, and every command that its reader types.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::support::examples::{self, Example, Http, target};
use crate::support::needs::needs;
use crate::support::pages::{ROOT, blocks, prose};
use crate::support::programs::output;
use crate::support::{Server, eventually};

const REQUESTS: usize = 200;
/// The longest time that an answer may take while the server is gone.
const BOUND: Duration = Duration::from_secs(20);

/// A line that begins with a dollar sign is a command, and the lines below it are its output. All commands run in one
/// shell.
#[test]
fn a_reader_sees_what_the_page_shows() {
    needs!("curl");
    needs!("redis-tools");
    let Some(example) = applications().next() else { return };
    let server = Server::start();
    let http = Http::start(&example, server.port);
    let page = fs::read_to_string(Path::new(ROOT).join("docs/protect.md")).unwrap();
    let (mut script, mut expected) = (String::new(), Vec::new());
    for line in prose(&page).into_iter().filter_map(|(line, _)| line.strip_prefix("    ")) {
        if let Some(command) = line.strip_prefix("$ ") {
            let command = command.replace(":8000", &format!(":{}", http.port));
            let command = command.replace("redis-cli", &format!("redis-cli -p {}", server.port));
            script.push_str(&format!("echo $\n{command}\n"));
        }
        expected.push(if line.starts_with("$ ") { "$" } else { line.trim() });
    }
    let shown = output(Command::new("bash").args(["-c", &script]));
    let shown: Vec<_> = shown.lines().map(str::trim).collect();
    assert_eq!(shown.len(), expected.len(), "{shown:#?}");
    for (shown, expected) in shown.iter().zip(&expected) {
        assert!(is_same(shown, expected), "{shown} instead of {expected}");
    }
}

/// Compares a line with the page's. The wait after status 429 may be some seconds shorter by now.
fn is_same(shown: &str, expected: &str) -> bool {
    let wait = |line: &str| -> Option<(String, u32)> {
        let (start, seconds) = line.rsplit_once(' ')?;
        Some((start.to_string(), seconds.parse().ok().filter(|_| start.ends_with("429"))?))
    };
    match (wait(shown), wait(expected)) {
        (Some((start, shown)), Some((expected_start, expected))) => {
            start == expected_start && (expected.saturating_sub(9)..=expected).contains(&shown)
        }
        _ => shown == expected,
    }
}

/// The limits of a log-in, a visitor and a customer, on a fresh start and after the server was gone.
#[test]
fn the_limits_let_through_exactly_their_number_of_200_requests_at_once() {
    for example in applications() {
        let mut server = Server::start();
        let http = Http::start(&example, server.port);
        attack(&http, &format!("{example:?}"));
        server.kill();
        let start = Instant::now();
        assert_eq!(http.ask_once(&log_in("bob", "battery staple")), 503, "{example:?}");
        assert_eq!(http.ask_once(VISIT), 200, "{example:?}");
        assert!(start.elapsed() < BOUND, "{example:?}: {:?}", start.elapsed());
        server.restart();
        let back = || (http.ask_once(&log_in("bob", "battery staple")) == 200).then_some(());
        assert!(eventually(BOUND, back).is_some(), "{example:?}");
        attack(&http, &format!("{example:?}, back"));
    }
}

const VISIT: &str = "GET /items/7 HTTP/1.0\r\n\r\n";
const CALL: &str = "GET /items/7 HTTP/1.0\r\nX-API-Key: secret-of-acme\r\n\r\n";

fn log_in(name: &str, password: &str) -> String {
    let form = format!("{{\"name\": \"{name}\", \"password\": \"{password}\"}}");
    let headers = format!("Content-Type: application/json\r\nContent-Length: {}", form.len());
    format!("POST /login HTTP/1.0\r\n{headers}\r\n\r\n{form}")
}

fn attack(http: &Http, what: &str) {
    let count = |request: &str, let_through: u16| {
        let statuses = http.at_once(REQUESTS, request);
        assert!(statuses.iter().all(|status| [let_through, 429, 503].contains(status)), "{what}: {statuses:?}");
        statuses.iter().filter(|status| **status == let_through).count()
    };
    assert_eq!(count(&log_in("alice", "guess"), 401), 5, "{what}");
    assert_eq!(count(VISIT, 200), 5, "{what}");
    let start = Instant::now();
    let answered = count(CALL, 200);
    // Ten tokens come back every second.
    let most = 11 + start.elapsed().as_millis() as usize / 100;
    assert!((10..=most).contains(&answered), "{what}: {answered} of {most}");
}

/// Returns the page's application in a folder that the page's own lines make.
fn applications() -> impl Iterator<Item = Example> {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(application);
    examples::protect().map(|example| example.within(folder))
}

fn application() -> PathBuf {
    let block = blocks(|block| block.place.starts_with("docs/protect.md") && block.language == "sh").remove(0);
    let lines: Vec<_> = block.text.lines().map(ToString::to_string).collect();
    assert!(lines[2].starts_with("cd /tmp/protect && python3 -m uvicorn "), "{lines:?}");
    let folder = target(&format!("protect-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    let make = lines[..2].join("\n").replace("/tmp/protect", folder.to_str().unwrap());
    output(Command::new("bash").args(["-ec", &make]).current_dir(ROOT));
    folder
}
