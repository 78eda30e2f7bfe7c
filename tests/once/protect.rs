//! The page "Protect a log-in form and an API": its application, attacked, and every command that its reader types.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::support::examples::{self, BOUND, Http};
use crate::support::losing::losing;
use crate::support::needs::needs;
use crate::support::pages::ROOT;
use crate::support::programs::signal;
use crate::support::{Server, eventually, run};

const REQUESTS: usize = 200;

/// A line that begins with a dollar sign is a command, and the lines below it are its output. All commands run in one
/// shell. The server starts again where the page says so.
#[test]
#[ignore = "slow: attacks"]
fn a_reader_sees_what_the_page_shows() {
    needs!("curl");
    needs!("redis-tools");
    let Some(example) = examples::protect().next() else { return };
    let mut server = Server::start();
    let http = Http::start(&example, server.port);
    let page = fs::read_to_string(Path::new(ROOT).join("docs/protect.md")).unwrap();
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

/// The limits of a log-in, a visitor and a customer. An hour is longer than any call takes: Redis decides each.
#[test]
#[ignore = "slow: attacks"]
fn the_limits_let_through_exactly_their_number_of_200_requests_at_once() {
    for example in examples::protect() {
        let server = Server::start();
        let http = Http::start(&example.with("TIMEOUT", "3600"), server.port);
        attack(&http, &format!("{example:?}"), 5);
    }
}

#[test]
#[ignore = "slow: attacks"]
fn without_redis_each_log_in_is_refused_and_a_visitor_gets_the_share() {
    for example in examples::protect() {
        let mut server = Server::start();
        let http = Http::start(&example, server.port);
        server.kill();
        assert_eq!(http.ask_once(&log_in("bob", "battery staple")), 503, "{example:?}");
        attack(&http, &format!("{example:?}"), 0);
        server.restart();
        let back = || (http.ask_once(&log_in("bob", "battery staple")) == 200).then_some(());
        assert!(eventually(BOUND, back).is_some(), "{example:?}");
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

/// The answer to the second call is lost, with which the attempt would be given back.
#[test]
#[ignore = "slow: attacks"]
fn a_right_password_is_accepted_even_if_it_is_not_given_back() {
    for example in examples::protect() {
        let server = Server::start();
        let http = Http::start(&example, losing(server.port, "CL.MTHROTTLE", 1, usize::MAX));
        assert_eq!(http.ask_once(&log_in("bob", "battery staple")), 200, "{example:?}");
        let counts = http.get("/metrics", "").2;
        assert!(counts.contains("{limit=\"login given back\",result=\"closed\"} 1.0"), "{example:?}: {counts}");
    }
}

/// A body of 36 MB takes ten seconds to read, in which the application answers no other request.
#[test]
#[ignore = "slow: attacks"]
fn a_large_body_is_refused_before_it_is_read() {
    for example in examples::protect() {
        let server = Server::start();
        let http = Http::start(&example, server.port);
        for (header, status) in [("Content-Length: 36000000", 413), ("Transfer-Encoding: chunked", 411)] {
            for path in ["/login", "/items/7", "/none"] {
                // The body never comes.
                let request = format!("POST {path} HTTP/1.1\r\nHost: x\r\n{header}\r\n\r\n");
                assert_eq!(http.ask_once(&request), status, "{example:?}: {path}");
            }
        }
    }
}

#[test]
#[ignore = "slow: attacks"]
fn a_form_of_any_letters_is_answered() {
    for example in examples::protect() {
        let server = Server::start();
        let http = Http::start(&example, server.port);
        let [surrogate, nul, long] = ["\\ud800".to_string(), "\\u0000".to_string(), "\\ud83d\\ude00".repeat(64)];
        for (name, password) in [(&surrogate, &nul), (&nul, &surrogate), (&long, &surrogate), (&long, &long)] {
            let status = http.ask_once(&log_in(name, password));
            assert!([401, 422].contains(&status), "{example:?}: {name} {password}: {status}");
        }
        assert_eq!(http.ask_once(&log_in(&long, &long.repeat(4))), 401, "{example:?}: the longest form");
        assert_eq!(http.ask_once(&log_in("alice", &"x".repeat(257))), 422, "{example:?}");
    }
}

/// The page says what a right password costs whose log-in got 503: one attempt of 50 a day.
#[test]
#[ignore = "slow: attacks"]
fn a_stall_charges_a_right_password_one_attempt_for_29_minutes() {
    let Some(example) = examples::protect().next() else { return };
    let server = Server::start();
    let http = Http::start(&example, server.port);
    signal(server.pid(), "STOP");
    assert_eq!(http.ask_once(&log_in("bob", "battery staple")), 503);
    signal(server.pid(), "CONT");
    let mut connection = server.connect();
    let charged = eventually(BOUND, || {
        let look = run::<[i64; 5]>(&mut connection, "CL.LOOK attempts:127.0.0.1 49 50 86400").unwrap();
        (look[2] == 49).then_some(look[4])
    });
    assert!(charged.is_some_and(|seconds| (28 * 60..29 * 60).contains(&seconds)), "{charged:?}");
    assert_eq!(run::<u64>(&mut connection, "EXISTS account:bob address:127.0.0.1").unwrap(), 0);
}

#[test]
#[ignore = "slow: attacks"]
fn a_stall_between_a_log_ins_two_calls_charges_the_account_for_3_minutes_and_the_address_for_1() {
    let Some(example) = examples::protect().next() else { return };
    let server = Server::start();
    let http = Http::start(&example, losing(server.port, "CL.MTHROTTLE", 0, usize::MAX));
    assert_eq!(http.ask_once(&log_in("bob", "battery staple")), 503);
    let mut connection = server.connect();
    for (look, seconds) in [("account:bob 4 20 3600", 180), ("address:127.0.0.1 19 60 3600", 60)] {
        let [.., reset_after] = run::<[i64; 5]>(&mut connection, &format!("CL.LOOK {look}")).unwrap();
        assert!((seconds - 20..=seconds).contains(&reset_after), "{look}: {reset_after}");
    }
}

/// An hour is the wait for two attempts, and not for three.
#[test]
#[ignore = "slow: attacks"]
fn two_attempts_are_back_after_the_first_ban_and_the_third_bans_for_a_day() {
    let Some(example) = examples::protect().next() else { return };
    let server = Server::start();
    let http = Http::start(&example.with("TIMEOUT", "3600"), server.port);
    let mut connection = server.connect();
    run::<()>(&mut connection, "CL.CHARGE attempts:127.0.0.1 49 50 86400 50").unwrap();
    let [two, three] = [2, 3].map(|attempts| {
        run::<Vec<u64>>(&mut connection, &format!("CL.LOOK attempts:127.0.0.1 49 50 86400 {attempts}")).unwrap()[3]
    });
    assert!(two <= 3600 && 3600 < three, "{two}, {three}");
    // The state after the hour: one offence, and two attempts.
    run::<()>(&mut connection, "CL.TAKE offences:127.0.0.1 1 1 86400 1").unwrap();
    run::<()>(&mut connection, "CL.CHARGE attempts:127.0.0.1 49 50 86400 -2").unwrap();
    assert_eq!([(); 3].map(|()| http.ask_once(&log_in("alice", "guess"))), [401, 401, 429]);
    assert!(run::<u64>(&mut connection, "TTL banned:127.0.0.1").unwrap() > 3600);
}

/// The page's lines of rights, given to the user as which the application connects.
#[test]
#[ignore = "slow: attacks"]
fn the_application_needs_no_more_rights_than_the_page_gives_it() {
    let page = fs::read_to_string(Path::new(ROOT).join("docs/protect.md")).unwrap();
    let lines = page.lines().filter_map(|line| line.strip_prefix("    ACL SETUSER login "));
    let rights = lines.collect::<Vec<_>>().join(" ").replace("on >secret ", "");
    assert!(rights.contains("+eval") && rights.contains("~account:*"), "{rights}");
    for example in examples::protect() {
        let server = Server::start();
        let mut connection = server.connect();
        run::<()>(&mut connection, &format!("ACL SETUSER default reset on nopass {rights} +acl")).unwrap();
        let http = Http::start(&example, server.port);
        assert_eq!(http.ask_once(&log_in("bob", "battery staple")), 200, "{example:?}");
        attack(&http, &format!("{example:?}"), 5);
        let denied = format!("{:?}", run::<redis::Value>(&mut connection, "ACL LOG").unwrap());
        for command in ["eval", "cl.", "pttl", "set\""] {
            assert!(!denied.contains(command), "{example:?}: {denied}");
        }
    }
}

/// Prometheus sees how much a count grows only from its second value on.
#[test]
#[ignore = "slow: attacks"]
fn each_count_begins_at_0() {
    for example in examples::protect() {
        let metrics = Http::start(&example, Server::start().port).get("/metrics", "").2;
        let counts: Vec<_> = metrics.lines().filter(|line| line.starts_with("limit_calls_total{")).collect();
        assert!(counts.len() == 15 && counts.iter().all(|count| count.ends_with(" 0.0")), "{counts:?}");
    }
}

const VISIT: &str = "GET /items/7 HTTP/1.0\r\n\r\n";
const CALL: &str = "GET /items/7 HTTP/1.0\r\nX-API-Key: secret-of-acme\r\n\r\n";

fn log_in(name: &str, password: &str) -> String {
    let form = format!("{{\"name\": \"{name}\", \"password\": \"{password}\"}}");
    let headers = format!("Content-Type: application/json\r\nContent-Length: {}", form.len());
    format!("POST /login HTTP/1.0\r\n{headers}\r\n\r\n{form}")
}

/// Checks that this many guesses are tried, and that a visitor and a customer are answered as often as their limits say.
fn attack(http: &Http, what: &str, guesses: usize) {
    for (request, let_through, least, period) in
        [(log_in("alice", "guess").as_str(), 401, guesses, 180_000), (VISIT, 200, 5, 12_000), (CALL, 200, 10, 100)]
    {
        let start = Instant::now();
        let statuses = http.at_once(REQUESTS, request);
        assert!(statuses.iter().all(|status| [let_through, 429, 503].contains(status)), "{what}: {statuses:?}");
        let passed = statuses.iter().filter(|status| **status == let_through).count();
        // A token has come back after each period, in ms.
        let most = least + start.elapsed().as_millis() as usize / period;
        assert!((least..=most).contains(&passed), "{what}: {request}: {passed} of {least} to {most}");
    }
}
