//! The examples that answer HTTP requests: their headers, their callers, and their answers without Redis.

use std::io::Read;
use std::time::Instant;

use crate::support::examples::{BOUND, Example, Http, express, php_server, redigo};
use crate::support::programs::signal;
use crate::support::traffic::side_by_side;
use crate::support::{Server, eventually, run};

#[test]
#[ignore = "slow: other languages"]
fn each_example_answers_in_time_when_redis_does_not() {
    side_by_side(express().chain(php_server()).chain(redigo()), |example| {
        serves_in_time_without_redis(&example);
    });
}

/// A caller that sends nothing must not hold a thread for ever.
#[test]
#[ignore = "slow: other languages"]
fn redigo_closes_a_connection_without_a_request() {
    side_by_side(redigo(), |example| {
        let http = Http::start(&example, Server::start().port);
        let mut idle = http.connect();
        idle.set_read_timeout(Some(BOUND)).unwrap();
        assert_eq!(idle.read(&mut [0]).unwrap(), 0, "{example:?}");
    });
}

#[test]
#[ignore = "slow: other languages"]
fn express_limits_a_customer_by_two_quotas_and_counts_by_limit() {
    for example in express() {
        let mut server = Server::start();
        let http = Http::start(&example, server.port);
        let get = |key: &str| {
            let (status, headers, _) = http.get("/items", &format!("X-API-Key: {key}\r\n"));
            let header = |name: &str| headers.iter().find_map(|header| header.strip_prefix(name)?.parse::<u32>().ok());
            let [limit, remaining, quota] =
                ["Limit", "Remaining", "Quota"].map(|name| header(&format!("X-RateLimit-{name}: ")));
            (status, limit, remaining, quota, header("Retry-After: "))
        };
        assert_eq!(get("made-up"), (401, None, None, None, None));
        assert_eq!(run::<Vec<String>>(&mut server.connect(), "KEYS *").unwrap(), [""; 0]);
        assert_eq!(get("secret-of-acme"), (200, Some(10), Some(9), Some(1), None));
        // A state with all tokens of the second, and one token of the day.
        let [seconds, _] = run::<[u64; 2]>(&mut server.connect(), "TIME").unwrap();
        let day = seconds + 999 * 86_400 / 1000;
        let state = format!("SET customer:acme {seconds}000000000{day}000000000 EXAT {day}");
        run::<()>(&mut server.connect(), &state).unwrap();
        assert_eq!(get("secret-of-acme"), (200, Some(1000), Some(0), Some(2), None));
        let (status, limit, remaining, quota, retry_after) = get("secret-of-acme");
        assert_eq!((status, limit, remaining, quota), (429, Some(1000), Some(0), Some(2)));
        assert!((30..=87).contains(&retry_after.unwrap()), "{retry_after:?}");
        server.kill();
        assert_eq!(get("secret-of-acme"), (200, None, None, None, None));
        assert_eq!(http.send("POST /login").0, 503);
        let metrics = http.get("/metrics", "").2;
        let counts: Vec<_> = metrics.lines().filter_map(|line| line.strip_prefix("limit_calls_total")).collect();
        let expected = [
            "{limit=\"customer\",result=\"allowed\"} 2",
            "{limit=\"customer\",result=\"limited\"} 1",
            "{limit=\"customer\",result=\"failed open\"} 1",
            "{limit=\"login\",result=\"failed closed\"} 1",
        ];
        let (zeros, others): (Vec<_>, Vec<_>) = counts.into_iter().partition(|count| count.ends_with(" 0"));
        assert_eq!(others, expected, "{example:?}");
        // Three limits have four results each.
        assert_eq!(zeros.len() + others.len(), 12, "{zeros:?}");
    }
}

/// Checks that an HTTP server of three at once and one a minute keeps running, and answers as chosen, while Redis is
/// stopped, paused, killed and restarted.
fn serves_in_time_without_redis(example: &Example) {
    for (request, fail, unlimited) in [("GET /", "open", 200), ("POST /login?next=/", "closed", 503)] {
        let mut server = Server::start();
        let http = Http::start(example, server.port);
        // Returns the status, and the remaining tokens if Redis answered.
        let get = || {
            let start = Instant::now();
            let (status, headers, _) = http.send(request);
            assert!(start.elapsed() < BOUND, "{example:?}, {fail}: {:?}", start.elapsed());
            let header = |name: &str| -> Option<u32> {
                let (_, value) = headers
                    .iter()
                    .filter_map(|header| header.split_once(": "))
                    .find(|(found, _)| found.eq_ignore_ascii_case(name))?;
                Some(value.parse().unwrap())
            };
            let remaining = header("X-RateLimit-Remaining");
            let retry = header("Retry-After");
            match (status, remaining) {
                (429, _) => assert!((30..=60).contains(&retry.unwrap()), "{headers:?}"),
                (503, None) => assert_eq!(retry, Some(1), "{headers:?}"),
                _ => assert_eq!((status, retry), (200, None), "{headers:?}"),
            }
            (status, remaining)
        };
        let back = || eventually(BOUND, || Some(get()).filter(|(_, remaining)| remaining.is_some())).unwrap();
        assert_eq!(back(), (200, Some(2)), "{example:?}, {fail}");
        signal(server.pid(), "STOP");
        assert_eq!(get(), (unlimited, None), "{example:?}, {fail}, stopped");
        signal(server.pid(), "CONT");
        // The call without an answer has taken one token by now, or none if its connection was closed first.
        let (status, remaining) = back();
        assert!(status == 200 && remaining <= Some(1), "{example:?}, {fail}, goes on: {remaining:?}");
        run::<()>(&mut server.connect(), "CLIENT PAUSE 60000 ALL").unwrap();
        assert_eq!(get(), (unlimited, None), "{example:?}, {fail}, paused");
        server.kill();
        assert_eq!(get(), (unlimited, None), "{example:?}, {fail}, gone");
        server.restart();
        let statuses = [back(), get(), get(), get()];
        assert_eq!(
            statuses,
            [(200, Some(2)), (200, Some(1)), (200, Some(0)), (429, Some(0))],
            "{example:?}, {fail}, back"
        );
    }
}
