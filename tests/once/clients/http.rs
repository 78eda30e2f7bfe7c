//! Express and nginx: two quotas on one route, and the counts; the share of limits.lua, and traps of nginx.

use crate::support::examples::{Example, Http, express, nginx};
use crate::support::{Server, run};

/// 10 a second and 1,000 a day: the headers are those of the quota that decides.
#[test]
#[ignore = "slow: other languages"]
fn express_and_nginx_limit_by_two_quotas_and_count_by_limit() {
    express().chain(nginx()).for_each(limits_by_two_quotas);
}

#[test]
#[ignore = "slow: 400,000 decisions"]
fn the_share_of_limits_lua_passes_nothing_beyond_the_exact_rule() {
    let Some(example) = nginx() else { return };
    assert_eq!(Http::start(&example, Server::start().port).get("/exact", "").2, "many taken, 0 beyond\n");
}

#[test]
#[ignore = "slow: other languages"]
fn nginx_charges_a_redirect_within_it_once_and_a_caller_without_a_right_name() {
    let Some(example) = nginx() else { return };
    let server = Server::start();
    let http = Http::start(&example, server.port);
    let get = |target| {
        let (status, headers, _) = http.get(target, "");
        (status, headers.iter().find_map(|header| header.strip_prefix("X-RateLimit-Remaining: ")?.parse::<u32>().ok()))
    };
    let charged = [(200, Some(2)), (401, Some(1)), (401, Some(0))];
    assert_eq!(["/redirected", "/unauthorized", "/unauthorized"].map(get), charged);
    assert_eq!(["/redirected", "/unauthorized", "/"].map(get), [(429, Some(0)); 3]);
    http.get("/login_by_socket", "");
    assert_eq!(run::<u64>(&mut server.connect(), "EXISTS hello:unix").unwrap(), 1, "the peer of a Unix socket");
}

fn limits_by_two_quotas(example: Example) {
    let mut server = Server::start();
    let http = Http::start(&example, server.port);
    let get = || {
        let (status, headers, _) = http.get("/items", "");
        let header = |name: &str| headers.iter().find_map(|header| header.strip_prefix(name)?.parse::<u32>().ok());
        let [limit, remaining, quota] =
            ["Limit", "Remaining", "Quota"].map(|name| header(&format!("X-RateLimit-{name}: ")));
        (status, limit, remaining, quota, header("Retry-After: "))
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
    assert_eq!((http.get("/", "").0, http.send("POST /login").0), (200, 503));
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
