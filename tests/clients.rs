//! The examples in tests/clients do what a user who copies them expects, with the clients as Debian packages them.

#[allow(dead_code, reason = "main is for whoever copies the file")]
mod redis_cell_rs;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ::redis_cell_rs::{AllowedDetails, BlockedDetails, Cmd, Key, Policy, Verdict};
use redis::RedisResult;

use crate::support::needs::needs;
use crate::support::programs::{node, output, python, redis_rs};
use crate::support::{Process, Server, run};

/// What the examples print: three at once and one a minute, and a last call that asks for four.
const ANSWERS: &str = "\
200 X-RateLimit-Limit: 3, X-RateLimit-Remaining: 2, X-RateLimit-Reset: 60
200 X-RateLimit-Limit: 3, X-RateLimit-Remaining: 1, X-RateLimit-Reset: 120
200 X-RateLimit-Limit: 3, X-RateLimit-Remaining: 0, X-RateLimit-Reset: 180
429 X-RateLimit-Limit: 3, X-RateLimit-Remaining: 0, X-RateLimit-Reset: 180, Retry-After: 60
429 X-RateLimit-Limit: 3, X-RateLimit-Remaining: 0, X-RateLimit-Reset: 180
";

#[test]
fn redis_py() {
    needs!("python3-redis");
    let server = Server::start();
    assert_eq!(output(&mut python("redis_py.py", &server)), ANSWERS);
}

#[test]
fn node_redis() {
    needs!("node-redis");
    let server = Server::start();
    assert_eq!(output(&mut node("node_redis.js", &server)), ANSWERS);
}

#[test]
fn redis_rs() {
    let server = Server::start();
    let mut connection = server.connect();
    for (quantity, expected) in [1, 1, 1, 1, 4].into_iter().zip(ANSWERS.lines()) {
        let answer = redis_rs::throttle(&mut connection, "user123", (2, 1, 60), quantity);
        assert_eq!(line(answer.unwrap()), expected);
    }
}

#[test]
fn redis_cell_rs() {
    let server = Server::start();
    let mut connection = server.connect();
    let policy = Policy::from_tokens_per_minute(1).max_burst(2);
    let mut throttle =
        |policy: Policy| -> RedisResult<_> { redis_cell_rs::throttle(&mut connection, "user123", &policy) };
    for expected in ANSWERS.lines().take(4) {
        assert_eq!(line(throttle(policy).unwrap()), expected);
    }
    // The crate has no place for a call that will never be allowed, of which brandur's redis-cell says the same.
    let error = throttle(policy.apply_tokens(4)).unwrap_err();
    assert!(error.to_string().contains("retry_after"), "{error}");
}

#[test]
fn redis_cell_rs_verdicts_are_right_for_every_kind_of_key() {
    let server = Server::start();
    let mut connection = server.connect();
    let policy = Policy::new(4, 1, Duration::from_secs(60), 2);
    for key in [
        Key::from("str"),
        Key::from("string".to_string()),
        Key::from(7_usize),
        Key::from(-7_isize),
        Key::pair("user123", "/api"),
        Key::triple("a", "b", "c"),
    ] {
        let mut verdict = || -> Verdict { redis::Cmd::from(Cmd::new(&key, &policy)).query(&mut connection).unwrap() };
        for (left, reset) in [(3, 120), (1, 240)] {
            assert!(
                matches!(
                    verdict(),
                    Verdict::Allowed(AllowedDetails { total: 5, remaining, reset_after, .. })
                        if (remaining, reset_after) == (left, reset)
                ),
                "{key}"
            );
        }
        let blocked = verdict();
        assert!(
            matches!(
                blocked,
                Verdict::Blocked(BlockedDetails { total: 5, remaining: 1, reset_after: 240, retry_after: 60, .. })
            ),
            "{key}: {blocked:?}"
        );
    }
}

#[test]
fn an_http_server_answers_200_and_429_with_headers() {
    needs!("python3-redis");
    let server = Server::start();
    let http = Http::start(&mut python("http_server.py", &server));
    for (expected, (remaining, more_in)) in ANSWERS.lines().take(4).zip([(2, 60), (1, 120), (0, 180), (0, 60)]) {
        let (status, headers, body) = http.get("");
        let with = |prefixes: [&str; 2]| -> Vec<_> {
            headers.iter().filter(|header| prefixes.iter().any(|prefix| header.starts_with(prefix))).cloned().collect()
        };
        assert_eq!(format!("{status} {}", with(["X-RateLimit-", "Retry-"]).join(", ")), expected);
        // The IETF's draft, of the same five integers.
        let draft = [
            "RateLimit-Policy: \"address\";q=3;w=180".to_string(),
            format!("RateLimit: \"address\";r={remaining};t={more_in}"),
        ];
        assert_eq!(with(["RateLimit-Policy:", "RateLimit:"]), draft);
        assert_eq!(body, if status == 200 { "Hello\n" } else { "Too many requests\n" });
    }
}

#[test]
fn an_http_server_answers_in_time_when_redis_does_not() {
    needs!("python3-redis");
    for (fail, expected) in [("open", (200, "Hello\n")), ("closed", (503, "Try again later\n"))] {
        let mut server = Server::start();
        let mut command = python("http_server.py", &server);
        let http = Http::start(command.env("FAIL", fail));
        let get = || {
            let start = Instant::now();
            let (status, headers, body) = http.get("");
            assert!(start.elapsed() < Duration::from_secs(20), "{fail}: {:?}", start.elapsed());
            let retry = headers.iter().any(|header| header == "Retry-After: 1");
            assert_eq!(retry, status == 503, "{headers:?}");
            (status, body)
        };
        assert_eq!(get().0, 200, "{fail}");
        // Slow: it answers in a minute.
        run::<()>(&mut server.connect(), "CLIENT PAUSE 60000 ALL").unwrap();
        assert_eq!(get(), (expected.0, expected.1.to_string()), "{fail}, slow");
        server.kill();
        assert_eq!(get(), (expected.0, expected.1.to_string()), "{fail}, gone");
        // And it limits again as soon as there is something to ask.
        server.restart();
        let statuses: Vec<_> = (0..4).map(|_| get().0).collect();
        assert_eq!(statuses, [200, 200, 200, 429], "{fail}, back");
    }
}

/// A user by name, whoever is not logged in by address, and nobody by what he makes up.
#[test]
fn an_http_server_limits_a_user_and_an_address_behind_its_own_proxy() {
    needs!("python3-redis");
    let server = Server::start();
    for proxy in ["127.0.0.1", "192.0.2.1"] {
        let mut command = python("http_server.py", &server);
        let http = Http::start(command.env("PROXY", proxy));
        for (headers, trusting, else_) in [
            ("", "address:127.0.0.1", "address:127.0.0.1"),
            ("Authorization: Bearer secret-of-alice\r\nX-Forwarded-For: 192.0.2.7\r\n", "user:alice", "user:alice"),
            ("Authorization: Bearer made-up\r\n", "address:127.0.0.1", "address:127.0.0.1"),
            ("X-Forwarded-For: 192.0.2.7\r\n", "address:192.0.2.7", "address:127.0.0.1"),
            ("X-Forwarded-For: 10.0.0.1, 192.0.2.7\r\n", "address:192.0.2.7", "address:127.0.0.1"),
            ("X-Forwarded-For: 10.0.0.1\r\nX-Forwarded-For: 192.0.2.7\r\n", "address:192.0.2.7", "address:127.0.0.1"),
            ("X-Forwarded-For: ::ffff:192.0.2.7\r\n", "address:192.0.2.7", "address:127.0.0.1"),
            ("X-Forwarded-For: 2001:db8:1:2:3::4\r\n", "address:2001:db8:1:2::/64", "address:127.0.0.1"),
        ] {
            let (status, answer, _) = http.get(headers);
            assert_eq!(status, 200, "{headers}");
            let key = if proxy == "127.0.0.1" { trusting } else { else_ };
            let limit = if key == "user:alice" { "\"user\";q=10;w=60" } else { "\"address\";q=3;w=180" };
            assert!(answer.contains(&format!("RateLimit-Policy: {limit}")), "{answer:?}");
            assert_eq!(run::<Vec<String>>(&mut server.connect(), "KEYS *").unwrap(), [key], "{headers}");
            run::<()>(&mut server.connect(), "FLUSHALL").unwrap();
        }
    }
}

/// An answer as the examples print it.
fn line<T: std::fmt::Display>((status, headers): (u16, Vec<(&str, T)>)) -> String {
    let headers: Vec<_> = headers.into_iter().map(|(name, value)| format!("{name}: {value}")).collect();
    format!("{status} {}", headers.join(", "))
}

/// The HTTP example, on a free port, gone when dropped.
struct Http {
    _process: Process,
    address: String,
}

impl Http {
    fn start(command: &mut Command) -> Self {
        // A busy machine's server does not always answer within the example's own tenth of a second.
        let command = command.env("HTTP_PORT", "0").env("TIMEOUT", "2").stdout(Stdio::piped());
        let mut process = Process::start(command);
        let mut url = String::new();
        BufReader::new(process.0.stdout.take().unwrap()).read_line(&mut url).unwrap();
        let address = url.trim().trim_start_matches("http://").trim_end_matches('/');
        Self { _process: process, address: address.to_string() }
    }

    /// The status, the headers and the body, for a request with these headers.
    fn get(&self, headers: &str) -> (u16, Vec<String>, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(stream, "GET / HTTP/1.0\r\n{headers}\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap();
        (status.parse().unwrap(), lines.map(ToString::to_string).collect(), body.to_string())
    }
}
