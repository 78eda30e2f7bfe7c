//! The examples that answer HTTP requests: their headers, their callers, and their answers without Redis.

use std::io::Read;
use std::time::Instant;

use serde_json::Value;

use super::ANSWERS;
use crate::support::examples::{
    BOUND, Example, Http, debian_python, debian_python_with, express, fastapi, flask, http_server, of_test, php_server,
    pypi_python_with, redigo,
};
use crate::support::programs::signal;
use crate::support::traffic::side_by_side;
use crate::support::{Server, eventually, run};

#[test]
#[ignore = "slow: other languages"]
fn an_http_server_answers_200_429_and_413_with_headers() {
    let server = Server::start();
    let Some(example) = debian_python("http_server.py") else { return };
    let http = Http::start(&example, server.port);
    for (expected, (remaining, more_in)) in ANSWERS.lines().take(4).zip([(2, 60), (1, 120), (0, 180), (0, 60)]) {
        let (status, headers, body) = http.get("/", "");
        let with = |prefixes: [&str; 2]| -> Vec<_> {
            headers.iter().filter(|header| prefixes.iter().any(|prefix| header.starts_with(prefix))).cloned().collect()
        };
        assert_eq!(format!("{status} {}", with(["X-RateLimit-", "Retry-"]).join(", ")), expected);
        // The headers of the IETF's draft, made of the same five integers.
        let draft = [
            "RateLimit-Policy: \"address\";q=3;w=180".to_string(),
            format!("RateLimit: \"address\";r={remaining};t={more_in}"),
        ];
        assert_eq!(with(["RateLimit-Policy:", "RateLimit:"]), draft);
        assert_eq!(body, if status == 200 { "Hello\n" } else { "Too many requests\n" });
    }
    // A limit of 0 allows no call, whatever its wait.
    let Some(example) = debian_python(&of_test("clients/no_tokens.py")) else { return };
    let (status, headers, body) = Http::start(&example, server.port).get("/", "");
    assert_eq!((status, &*body), (413, "Too large a request\n"));
    assert!(headers.iter().all(|header| !header.starts_with("Retry-")), "{headers:?}");
}

/// The replica answers even when the primary is gone.
#[test]
#[ignore = "slow: other languages"]
fn an_http_server_shows_a_quota_from_a_replica_and_takes_nothing() {
    let Some(example) = debian_python("http_server.py") else { return };
    let mut primary = Server::start();
    let mut replica = Server::start_with(&["--replicaof", "127.0.0.1", &primary.port.to_string()]);
    let alone = Http::start(&example, primary.port);
    let http = Http::start(&example.with("REPLICA_PORT", &replica.port.to_string()), primary.port);
    let quota = |http: &Http| {
        let (status, _, body) = http.get("/quota", "");
        (status, body)
    };
    for (remaining, retry_after, reset_after) in [(3, 0, 0), (2, 0, 60), (1, 0, 120), (0, 60, 180)] {
        for http in [&alone, &http, &alone, &http] {
            // The replica receives the effect of a call after the caller has its answer.
            let shown = eventually(BOUND, || {
                let (status, body) = quota(http);
                assert_eq!(status, 200);
                let shown: Value = serde_json::from_str(&body).unwrap();
                let [limit, left, retry, reset] =
                    ["limit", "remaining", "retry_after", "reset_after"].map(|name| shown[name].as_i64().unwrap());
                assert_eq!(limit, 3, "{body}");
                // The numbers may be some seconds lower by now.
                let about = |shown: i64, most: i64| (most - 30..=most).contains(&shown) && shown >= most.min(1);
                (left == remaining && about(retry, retry_after) && about(reset, reset_after)).then_some(())
            });
            assert!(shown.is_some(), "{remaining}: {:?}", quota(http));
        }
        http.get("/", "");
    }
    primary.kill();
    assert_eq!(quota(&alone), (503, "{}\n".to_string()));
    assert_eq!(quota(&http).0, 200);
    replica.kill();
    assert_eq!(quota(&http), (503, "{}\n".to_string()));
}

#[test]
#[ignore = "slow: other languages"]
fn each_example_answers_in_time_when_redis_does_not() {
    let python = http_server().chain(flask()).chain(fastapi());
    side_by_side(python.chain(express()).chain(php_server()).chain(redigo()), |example| {
        serves_in_time_without_redis(&example);
    });
}

/// A caller that sends nothing must not hold a thread for ever.
#[test]
#[ignore = "slow: other languages"]
fn an_http_server_and_redigo_close_a_connection_without_a_request() {
    side_by_side(http_server().take(1).chain(redigo()), |example| {
        let http = Http::start(&example, Server::start().port);
        let mut idle = http.connect();
        idle.set_read_timeout(Some(BOUND)).unwrap();
        assert_eq!(idle.read(&mut [0]).unwrap(), 0, "{example:?}");
    });
}

#[test]
#[ignore = "slow: other languages"]
fn an_http_server_limits_a_user_by_name() {
    let Some(example) = debian_python("http_server.py") else { return };
    let server = Server::start();
    let http = Http::start(&example, server.port);
    for (headers, key, limit) in [
        ("Authorization: Bearer secret-of-alice\r\nX-Forwarded-For: 192.0.2.7\r\n", "user:alice", "\"user\";q=10;w=60"),
        ("Authorization: Bearer made-up\r\n", "address:127.0.0.1", "\"address\";q=3;w=180"),
    ] {
        let (status, answer, _) = http.get("/", headers);
        assert_eq!(status, 200, "{headers}");
        assert!(answer.contains(&format!("RateLimit-Policy: {limit}")), "{answer:?}");
        assert_eq!(run::<Vec<String>>(&mut server.connect(), "KEYS *").unwrap(), [key], "{headers}");
        run::<()>(&mut server.connect(), "FLUSHALL").unwrap();
    }
}

#[test]
#[ignore = "slow: other languages"]
fn fastapi_limits_a_route_whatever_the_numbers_in_its_path() {
    fastapi().for_each(|example| {
        let server = Server::start();
        let http = Http::start(&example, server.port);
        let statuses = [1, 2, 3, 4].map(|number| http.send(&format!("GET /items/{number}")).0);
        assert_eq!(statuses, [200, 200, 200, 429]);
        let keys = run::<Vec<String>>(&mut server.connect(), "KEYS *").unwrap();
        assert_eq!(keys, ["GET /items/{number}:127.0.0.1"]);
    });
}

/// A blueprint's view may have the name of another view.
#[test]
#[ignore = "slow: other languages"]
fn flask_limits_each_view_by_itself() {
    let program = [&*of_test("clients/blueprint.py")];
    let debian = debian_python_with("python3-flask", "flask", &program);
    for example in [debian, pypi_python_with(&program)].into_iter().flatten() {
        assert_eq!(example.output(Server::start().port), "200 200\n", "{example:?}");
    }
}

/// Ten requests a second and a thousand a day: the headers are those of the quota that decides.
#[test]
#[ignore = "slow: other languages"]
fn fastapi_limits_a_key_of_its_api_by_two_quotas_in_one_call() {
    fastapi().for_each(|example| {
        let server = Server::start();
        let http = Http::start(&example, server.port);
        let key = "X-API-Key: secret-of-acme\r\n";
        let rate = || -> (u16, Vec<u32>) {
            let (status, headers, _) = http.get("/orders/7", key);
            let values = headers.iter().filter_map(|header| {
                header.to_lowercase().strip_prefix("x-ratelimit-")?.split(": ").nth(1)?.parse().ok()
            });
            (status, values.collect())
        };
        assert_eq!(rate(), (200, vec![10, 9, 1, 1]), "{example:?}");
        assert_eq!(run::<Vec<String>>(&mut server.connect(), "KEYS *").unwrap(), ["customer:acme"]);
        // Take all but five of the day's tokens. The first quota would not let 994 through, so this call enlarges it.
        let call = "CL.THROTTLE customer:acme 999999999 1000000000 1 994 999 1000 86400";
        assert_eq!(run::<Vec<i64>>(&mut server.connect(), call).unwrap()[..3], [0, 1000, 5]);
        for left in [4, 3, 2, 1, 0] {
            let (status, shown) = rate();
            assert_eq!((status, shown[0], shown[1], shown[3]), (200, 1000, left, 2), "{example:?}");
        }
        assert_eq!(rate().0, 429, "{example:?}");
        assert_eq!(http.get("/orders/7", "").0, 401, "{example:?}");
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
