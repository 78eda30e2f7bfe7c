//! The page "Protect a log-in form and an API": its application, attacked, and every command that its reader types.

use std::fs;
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::examples::{self, Http};
use crate::support::needs::needs;
use crate::support::pages::{ROOT, prose};
use crate::support::programs::output;
use crate::support::{Server, eventually, run};

const REQUESTS: usize = 200;
/// The longest time that an answer may take while the server is gone.
const BOUND: Duration = Duration::from_secs(20);

/// A line that begins with a dollar sign is a command, and the lines below it are its output. All commands run in one
/// shell.
#[test]
#[ignore = "slow: attacks"]
fn a_reader_sees_what_the_page_shows() {
    needs!("curl");
    needs!("redis-tools");
    let Some(example) = examples::protect().next() else { return };
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
#[ignore = "slow: attacks"]
fn the_limits_let_through_exactly_their_number_of_200_requests_at_once() {
    for example in examples::protect() {
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

/// A guesser makes up names, and a visitor makes up API keys.
#[test]
#[ignore = "slow: attacks"]
fn a_limited_address_and_an_unknown_api_key_make_no_limiter() {
    let Some(example) = examples::protect().next() else { return };
    let server = Server::start();
    let http = Http::start(&example, server.port);
    let mut connection = server.connect();
    let mut keys = || run::<u64>(&mut connection, "DBSIZE").unwrap();
    let guess = |names: Range<u8>| names.map(|name| http.ask_once(&log_in(&format!("name{name}"), "guess")));
    assert!(guess(0..20).all(|status| status == 401));
    let before = keys();
    assert!(guess(20..25).all(|status| status == 429));
    assert_eq!(keys(), before);
    let visit = |key: u8| http.ask_once(&VISIT.replace("\r\n\r\n", &format!("\r\nX-API-Key: unknown{key}\r\n\r\n")));
    assert_eq!([0, 1, 2, 3, 4, 5].map(visit), [200, 200, 200, 200, 200, 429]);
    assert_eq!(keys(), before + 1, "the visitors are one limiter");
}

/// Other requests use all connections at the moment at which the attempt would be given back.
#[test]
#[ignore = "slow: attacks"]
fn a_right_password_is_accepted_even_if_no_connection_is_free_to_give_back() {
    let code = "
import asyncio, protect
async def main():
    await protect.pool.open()
    call = protect.pool.call
    async def call_and_fill(*words):
        answer = await call(*words)
        if words[0] == 'CL.MTHROTTLE':
            for _ in range(20):
                await protect.pool.turns.acquire()
        return answer
    protect.pool.call = call_and_fill
    print(await protect.login(protect.Form(name='alice', password='correct horse'), '192.0.2.7'))
asyncio.run(main())";
    for example in examples::protect_code(code) {
        assert_eq!(example.output(Server::start().port), "Welcome\n", "{example:?}");
    }
}

#[test]
#[ignore = "slow: attacks"]
fn a_limit_whose_choice_is_misspelt_fails_closed() {
    let code = "
import asyncio, protect
async def main():
    try:
        print(await protect.ask('login', 'close', 'NO.SUCH.COMMAND'))
    except protect.HTTPException as error:
        print(error.status_code)
asyncio.run(main())";
    for example in examples::protect_code(code) {
        assert_eq!(example.output(Server::start().port), "503\n", "{example:?}");
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
