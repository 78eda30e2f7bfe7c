//! The examples that serve HTTP: the address of a caller, several quotas, limits or routes, log-ins, and the counts.

use crate::support::examples::Libraries::Python;
use crate::support::examples::{Example, Http, examples};
use crate::support::traffic::side_by_side;
use crate::support::{Server, run};

/// Callers' addresses, and the address by which each is limited.
const ADDRESSES: &str = include_str!("addresses.txt");

/// An address that the caller makes up is ignored, and any header of a proxy, however malformed, gets an answer.
#[test]
#[ignore = "slow: other languages"]
fn each_example_limits_the_same_address_or_network_behind_its_own_proxy() {
    let first = |name| examples(name).into_iter().next();
    side_by_side(["express", "flask", "fastapi", "nginx"].into_iter().filter_map(first), |example| {
        let server = Server::start();
        let limited_by = |http: &Http, header: &str| {
            assert_eq!(http.get("/", header).0, 200, "{example:?}, {header}");
            let keys = run::<Vec<String>>(&mut server.connect(), "KEYS *").unwrap();
            run::<()>(&mut server.connect(), "FLUSHALL").unwrap();
            keys.concat()
        };
        let http = Http::start(&example.with("PROXY", "127.0.0.1"), server.port);
        let (_, cases) = ADDRESSES.split_once("\n\n").unwrap();
        // nginx itself reads the header, and knows no zone.
        let knows = |line: &&str| !line.contains('%') || !format!("{example:?}").contains("nginx");
        for line in cases.lines().filter(knows) {
            let (word, limited) = line.split_once(' ').unwrap();
            let limited = limited.trim();
            let header = format!("X-Forwarded-For: 10.0.0.1, {word}\r\n");
            assert_eq!(limited_by(&http, &header), format!("hello:{limited}"), "{example:?}, {word}");
        }
        let http = Http::start(&example.with("PROXY", "192.0.2.1"), server.port);
        assert_eq!(limited_by(&http, "X-Forwarded-For: 192.0.2.7\r\n"), "hello:127.0.0.1", "{example:?}");
    });
}

#[test]
#[ignore = "slow: other languages"]
fn a_route_may_have_two_limits_and_two_routes_one() {
    for (framework, modules) in [("flask", "flask"), ("fastapi", "fastapi, uvicorn")] {
        let words = format!("../../tests/once/clients/two_limits.py {framework}");
        side_by_side(Python(modules).run(&words), |example| {
            let server = Server::start();
            let http = Http::start(&example.with("TIMEOUT", "3600"), server.port);
            // All headers are those of the limit with fewer remaining.
            let numbers = |target| {
                let (status, headers, _) = http.get(target, "");
                let [limit, remaining, wait] = NUMBERS.map(|name| number(&headers, name));
                (status, limit, remaining, wait.is_some())
            };
            for remaining in [2, 1, 0] {
                assert_eq!(numbers("/stacked"), (200, Some(3), Some(remaining), false), "{example:?}");
            }
            assert_eq!(numbers("/stacked"), (429, Some(3), Some(0), true), "{example:?}");
            let statuses = ["/one", "/other/1", "/other/2", "/one"].map(|target| http.get(target, "").0);
            assert_eq!(statuses, [200, 200, 200, 429], "{example:?}");
            let mut keys = run::<Vec<String>>(&mut server.connect(), "KEYS *").unwrap();
            keys.retain(|key| !key.starts_with("burst:"));
            keys.sort_unstable();
            assert_eq!(keys, ["both:127.0.0.1", "day:127.0.0.1"]);
        });
    }
}

/// A log-in is charged to the account and to the address, and a right password gives back.
#[test]
#[ignore = "slow: other languages"]
fn the_throttles_for_django_charge_a_log_in_once_and_show_headers() {
    for example in examples("django") {
        let server = Server::start();
        let http = Http::start(&example.with("TIMEOUT", "3600"), server.port);
        let log_in = |password: &str| {
            let form = format!("username=%20ALICE&password={password}");
            let headers = "Content-Type: application/x-www-form-urlencoded\r\n";
            http.ask_once(&format!("POST /login HTTP/1.0\r\n{headers}Content-Length: {}\r\n\r\n{form}", form.len()))
        };
        assert_eq!([(); 5].map(|()| log_in("correct+horse")), [200; 5], "{example:?}");
        assert_eq!([(); 4].map(|()| log_in("guess")), [200, 200, 200, 429], "{example:?}");
        let mut connection = server.connect();
        for (look, remaining) in [("login_account:alice 2 1 86400", 0), ("login_address:127.0.0.1 19 60 3600", 17)] {
            assert_eq!(run::<Vec<i64>>(&mut connection, &format!("CL.LOOK {look}")).unwrap()[2], remaining, "{look}");
        }
        let shown = |status: u16, expected: &[&str]| {
            let (found, headers, _) = http.get("/", "");
            assert_eq!(found, status, "{example:?}");
            assert!(expected.iter().all(|name| headers.iter().any(|line| line.starts_with(name))), "{headers:?}");
        };
        for remaining in ["X-RateLimit-Remaining: 2", "X-RateLimit-Remaining: 1", "X-RateLimit-Remaining: 0"] {
            shown(200, &["X-RateLimit-Limit: 3", remaining, "X-RateLimit-Reset: "]);
        }
        shown(429, &["X-RateLimit-Limit: 3", "X-RateLimit-Remaining: 0", "Retry-After: 86"]);
    }
}

/// 10 a second and 1,000 a day: the headers are those of the quota that decides.
#[test]
#[ignore = "slow: other languages"]
fn express_and_nginx_limit_by_two_quotas_and_count_by_limit() {
    examples("express").into_iter().chain(examples("nginx")).for_each(limits_by_two_quotas);
}

fn limits_by_two_quotas(example: Example) {
    let mut server = Server::start();
    let http = Http::start(&example, server.port);
    let get = || {
        let (status, headers, _) = http.get("/items", "");
        let [limit, remaining, wait] = NUMBERS.map(|name| number(&headers, name));
        (status, limit, remaining, number(&headers, "x-ratelimit-quota"), wait)
    };
    assert_eq!(get(), (200, Some(10), Some(9), Some(1), None), "{example:?}");
    let key = "items:127.0.0.1";
    assert_eq!(run::<Vec<String>>(&mut server.connect(), "KEYS *").unwrap(), [key]);
    // A state with all tokens of the second, and one token of the day.
    let [seconds, _] = run::<[u64; 2]>(&mut server.connect(), "TIME").unwrap();
    let day = seconds + 999 * 86_400 / 1000;
    run::<()>(&mut server.connect(), &format!("SET {key} {seconds}000000000{day}000000000 EXAT {day}")).unwrap();
    assert_eq!(get(), (200, Some(1000), Some(0), Some(2), None), "{example:?}");
    let (status, limit, remaining, quota, retry_after) = get();
    assert_eq!((status, limit, remaining, quota), (429, Some(1000), Some(0), Some(2)), "{example:?}");
    assert!((30..=87).contains(&retry_after.unwrap()), "{example:?}: {retry_after:?}");
    server.kill();
    // The process remembers that this caller is refused.
    let (status, _, remaining, _, retry_after) = get();
    assert!(status == 429 && remaining.is_none() && (30..=87).contains(&retry_after.unwrap()), "{example:?}");
    let log_in = http.ask_once("POST /login HTTP/1.0\r\nContent-Length: 0\r\n\r\n");
    assert_eq!((http.get("/", "").0, log_in), (200, 503));
    let metrics = http.get("/metrics", "").2;
    let count = |labels: String| {
        let line =
            metrics.lines().find_map(|line| line.strip_prefix(&format!("limit_calls_total{{limit={labels}\"}} ")));
        line.unwrap_or_else(|| panic!("{labels}: {metrics}")).to_string()
    };
    let results = |limit| {
        let results = ["allowed", "limited", "share", "closed"];
        results.map(|result| count(format!("\"{limit}\",result=\"{result}"))).concat()
    };
    assert_eq!(["items", "login", "hello"].map(results), ["2200", "0001", "0010"], "{example:?}");
}

#[test]
#[ignore = "slow: other languages"]
fn nginx_charges_a_redirect_within_it_once_and_a_caller_without_a_right_name() {
    let Some(example) = examples("nginx").pop() else { return };
    let server = Server::start();
    let http = Http::start(&example, server.port);
    let get = |target| {
        let (status, headers, _) = http.get(target, "");
        (status, number(&headers, "x-ratelimit-remaining"))
    };
    let charged = [(200, Some(2)), (401, Some(1)), (401, Some(0))];
    assert_eq!(["/redirected", "/unauthorized", "/unauthorized"].map(get), charged);
    assert_eq!(["/redirected", "/unauthorized", "/"].map(get), [(429, Some(0)); 3]);
    http.get("/login_by_socket", "");
    assert_eq!(run::<u64>(&mut server.connect(), "EXISTS hello:unix").unwrap(), 1, "the peer of a Unix socket");
}

const NUMBERS: [&str; 3] = ["x-ratelimit-limit", "x-ratelimit-remaining", "retry-after"];

fn number(headers: &[String], name: &str) -> Option<u32> {
    let number = |header: &String| header.to_lowercase().strip_prefix(name)?.strip_prefix(": ")?.parse().ok();
    headers.iter().find_map(number)
}
