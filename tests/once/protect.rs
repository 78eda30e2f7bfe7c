//! The page "Protect a log-in form and an API": its application, attacked, and every command that its reader types.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use crate::support::clock::{Clock, START};
use crate::support::endpoint::losing;
use crate::support::examples::{Http, protect};
use crate::support::needs::{CURL, REDIS_CLI, needs};
use crate::support::pages::text_of;
use crate::support::programs::signal;
use crate::support::{Server, run, wait_until};

const REQUESTS: usize = 200;

/// Runs the test with the application, with each version of its libraries, and with a server of its own, whose
/// clock stands: no token comes back. With a timeout of an hour, Redis decides each call.
fn each(timeout: &str, test: impl Fn(&mut Server, &Http)) {
    for example in protect() {
        println!("{example:?}");
        let (_clock, mut server, _) = Clock::start(START);
        let http = Http::start(&example.with("TIMEOUT", timeout), server.port);
        test(&mut server, &http);
    }
}

/// A line that begins with a dollar sign is a command, and the lines below it are its output. All commands run in one
/// shell. The server starts again where the page says so.
#[test]
#[ignore = "slow: attacks"]
fn a_reader_sees_what_the_page_shows() {
    needs!(CURL);
    needs!(REDIS_CLI);
    let Some(example) = protect().into_iter().next() else { return };
    let page = text_of("docs/protect.md");
    let mut server = Server::start();
    let http = Http::start(&example, server.port);
    let mut bash = Command::new("bash").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut input, mut output) = (bash.stdin.take().unwrap(), BufReader::new(bash.stdout.take().unwrap()).lines());
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        if line.starts_with("Start the server again") {
            server.kill();
            server.restart();
        }
        let Some(command) = line.strip_prefix("    $ ") else { continue };
        let typed = command.replace(":8000", &format!(":{}", http.port));
        let typed = typed.replace("redis-cli", &format!("redis-cli --no-raw -p {}", server.port));
        writeln!(input, "{typed}\necho end").unwrap();
        let shown: Vec<_> = output.by_ref().map(Result::unwrap).take_while(|line| line != "end").collect();
        let output = |line: &&str| line.starts_with("    ") && !line.starts_with("    $ ");
        let expected: Vec<_> = std::iter::from_fn(|| lines.next_if(output)).map(str::trim).collect();
        let same = shown.iter().zip(&expected).all(|(shown, expected)| is_same(shown.trim(), expected));
        assert!(same && shown.len() == expected.len(), "{command}: {shown:#?} instead of {expected:#?}");
    }
    drop(input);
    assert!(bash.wait().unwrap().success());
}

/// Compares a line with the page's. The wait after status 429 may be some seconds shorter by now.
fn is_same(shown: &str, expected: &str) -> bool {
    let seconds = |line: &str| line.split_once("429 ").and_then(|(_, seconds)| seconds.parse::<u32>().ok());
    match (seconds(shown), seconds(expected)) {
        (Some(shown), Some(expected)) => (expected.saturating_sub(9)..=expected).contains(&shown),
        _ => shown == expected,
    }
}

/// The application connects as a user with the rights on the page.
#[test]
#[ignore = "slow: attacks"]
fn the_limits_let_through_exactly_their_number_of_200_requests_at_once_with_the_rights_on_the_page() {
    let page = text_of("docs/protect.md");
    let lines = page.lines().filter_map(|line| line.strip_prefix("    ACL SETUSER login "));
    let rights = lines.collect::<Vec<_>>().join(" ").replace("on >secret ", "");
    assert!(rights.contains("+eval") && rights.contains("~account:*"), "{rights}");
    each("3600", |server, http| {
        let mut connection = server.connect();
        run::<()>(&mut connection, &format!("ACL SETUSER default reset on nopass {rights} +acl")).unwrap();
        assert_eq!(log_in(http, "bob", "battery staple"), 200);
        assert_eq!(attack(http), [5, 5, 10]);
        let denied = format!("{:?}", run::<redis::Value>(&mut connection, "ACL LOG").unwrap());
        for command in ["eval", "cl.", "pttl", "set\""] {
            assert!(!denied.contains(command), "{denied}");
        }
    });
}

#[test]
#[ignore = "slow: attacks"]
fn a_stall_charges_a_right_password_once_and_without_redis_each_log_in_is_refused_and_a_visitor_gets_the_share() {
    each("2", |server, http| {
        signal(server.pid(), "STOP");
        assert_eq!(log_in(http, "bob", "battery staple"), 503);
        signal(server.pid(), "CONT");
        let mut connection = server.connect();
        let mut left = || run::<[i64; 5]>(&mut connection, "CL.LOOK attempts:127.0.0.1 49 50 86400").unwrap()[2];
        wait_until("one attempt is charged", || left() == 49);
        assert_eq!(run::<u64>(&mut connection, "EXISTS account:bob address:127.0.0.1").unwrap(), 0);
        server.kill();
        assert_eq!(log_in(http, "bob", "battery staple"), 503);
        // The tokens of a share come back by the real clock: a visitor's day has 30.
        let [guesses, visits, calls] = attack(http);
        assert!(guesses == 0 && (5..=30).contains(&visits) && calls >= 10, "{guesses}, {visits}, {calls}");
        server.restart();
        wait_until("Redis is found again", || log_in(http, "bob", "battery staple") == 200);
    });
}

/// A guesser makes up names, and a visitor makes up API keys.
#[test]
#[ignore = "slow: attacks"]
fn a_limited_address_and_an_unknown_api_key_make_no_limiter() {
    each("2", |server, http| {
        let mut connection = server.connect();
        let mut keys = || run::<u64>(&mut connection, "DBSIZE").unwrap();
        let guess = |name: usize| log_in(http, &format!("name{name}"), "guess");
        assert!((0..20).map(guess).all(|status| status == 401));
        let before = keys();
        assert!((20..25).map(guess).all(|status| status == 429));
        assert_eq!(keys(), before);
        let visit = |key| http.get("/items/7", &format!("X-API-Key: unknown{key}\r\n")).0;
        assert_eq!([0, 1, 2, 3, 4, 5].map(visit), [200, 200, 200, 200, 200, 429]);
        assert_eq!(keys(), before + 1, "the visitors are one limiter");
    });
}

/// The answer to the second call is lost, with which the attempt would be given back. Prometheus sees how much a count
/// grows only from its second value on.
#[test]
#[ignore = "slow: attacks"]
fn a_right_password_is_accepted_even_if_it_is_not_given_back_and_each_count_begins_at_0() {
    for example in protect() {
        let server = Server::start();
        let http = Http::start(&example, losing(server.port, "CL.MTHROTTLE", 1, usize::MAX));
        let metrics = http.get("/metrics", "").2;
        let counts: Vec<_> = metrics.lines().filter(|line| line.starts_with("limit_calls_total{")).collect();
        assert!(counts.len() == 15 && counts.iter().all(|count| count.ends_with(" 0.0")), "{counts:?}");
        assert_eq!(log_in(&http, "bob", "battery staple"), 200);
        let counts = http.get("/metrics", "").2;
        assert!(counts.contains("{limit=\"login given back\",result=\"closed\"} 1.0"), "{counts}");
    }
}

#[test]
#[ignore = "slow: attacks"]
fn a_large_body_is_refused_before_it_is_read_and_a_form_of_any_letters_is_answered() {
    each("2", |_, http| {
        // This body never comes.
        for (header, status) in [("Content-Length: 36000000", 413), ("Transfer-Encoding: chunked", 411)] {
            for path in ["/login", "/items/7", "/none"] {
                let request = format!("POST {path} HTTP/1.1\r\nHost: x\r\n{header}\r\n\r\n");
                assert_eq!(http.ask_once(&request), status, "{path}");
            }
        }
        let long = "\\ud83d\\ude00".repeat(64);
        for (name, password) in [("\\ud800", "\\u0000"), ("\\u0000", "\\ud800"), (&long, "\\ud800")] {
            let status = log_in(http, name, password);
            assert!([401, 422].contains(&status), "{name} {password}: {status}");
        }
        assert_eq!(log_in(http, &long, &long.repeat(4)), 401, "the longest form");
        assert_eq!(log_in(http, "alice", &"x".repeat(257)), 422);
    });
}

#[test]
#[ignore = "slow: attacks"]
fn two_attempts_are_back_after_the_first_ban_and_the_third_bans_for_a_day() {
    each("3600", |server, http| {
        let mut connection = server.connect();
        run::<()>(&mut connection, "CL.CHARGE attempts:127.0.0.1 49 50 86400 50").unwrap();
        let [two, three] = [2, 3].map(|attempts| {
            let look = format!("CL.LOOK attempts:127.0.0.1 49 50 86400 {attempts}");
            run::<[i64; 5]>(&mut connection, &look).unwrap()[3]
        });
        assert!(two <= 3600 && 3600 < three, "{two}, {three}");
        // The state after the hour: one offence, and two attempts.
        run::<()>(&mut connection, "CL.TAKE offences:127.0.0.1 1 1 86400 1").unwrap();
        run::<()>(&mut connection, "CL.CHARGE attempts:127.0.0.1 49 50 86400 -2").unwrap();
        assert_eq!([(); 3].map(|()| log_in(http, "alice", "guess")), [401, 401, 429]);
        assert!(run::<u64>(&mut connection, "TTL banned:127.0.0.1").unwrap() > 3600);
    });
}

const VISIT: &str = "GET /items/7 HTTP/1.0\r\n\r\n";
const CALL: &str = "GET /items/7 HTTP/1.0\r\nX-API-Key: secret-of-acme\r\n\r\n";

fn form(name: &str, password: &str) -> String {
    let form = format!("{{\"name\": \"{name}\", \"password\": \"{password}\"}}");
    let headers = format!("Content-Type: application/json\r\nContent-Length: {}", form.len());
    format!("POST /login HTTP/1.0\r\n{headers}\r\n\r\n{form}")
}

/// Returns the status that a log-in gets.
fn log_in(http: &Http, name: &str, password: &str) -> u16 {
    http.ask_once(&form(name, password))
}

/// Attacks with guesses, as a visitor and as a customer, and returns how many requests of each get through.
fn attack(http: &Http) -> [usize; 3] {
    [(&*form("alice", "guess"), 401), (VISIT, 200), (CALL, 200)].map(|(request, through)| {
        let statuses = http.at_once(REQUESTS, request);
        assert!(statuses.iter().all(|status| [through, 429, 503].contains(status)), "{statuses:?}");
        statuses.iter().filter(|status| **status == through).count()
    })
}
