//! The examples in docs/clients do what a user who copies them expects. They run with the client libraries of Debian
//! 12 and with the newest of PyPI and npm, which docs/clients/requirements.txt and package.json name.
//!
//! A test whose language or library is missing is left out, and says so. scripts/test installs the small ones and sets
//! `REQUIRE_ALL`, with which a missing one fails the test.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use ::redis_cell_rs::{AllowedDetails, BlockedDetails, Cmd, Key, Policy, Verdict};
use redis::{Client, RedisResult};

use crate::support::cluster::{SLOTS, add_slots};
use crate::support::examples::{
    Example, Http, TIMEOUT, debian_node, debian_python, debian_python_with, express, fastapi, flask, hiredis,
    http_server, npm_node, path, php_server, phpredis, predis, pypi_python, pypi_python_with, redigo, redigo_with,
    redis_rb,
};
use crate::support::needs::found;
use crate::support::programs::redis_rs::Fail;
use crate::support::programs::{redis_cell_rs, redis_rs, signal};
use crate::support::traffic::side_by_side;
use crate::support::{Process, Server, eventually, free_port, info, run, wait_until};

/// The output of the examples: three at once and one a minute, and a last call that asks for four.
const ANSWERS: &str = "\
200 X-RateLimit-Limit: 3, X-RateLimit-Remaining: 2, X-RateLimit-Reset: 60
200 X-RateLimit-Limit: 3, X-RateLimit-Remaining: 1, X-RateLimit-Reset: 120
200 X-RateLimit-Limit: 3, X-RateLimit-Remaining: 0, X-RateLimit-Reset: 180
429 X-RateLimit-Limit: 3, X-RateLimit-Remaining: 0, X-RateLimit-Reset: 180, Retry-After: 60
429 X-RateLimit-Limit: 3, X-RateLimit-Remaining: 0, X-RateLimit-Reset: 180
";
/// The longest time that an example may take to start and make its calls without an answer.
const BOUND: Duration = Duration::from_secs(20);

/// The page shows the answers and the version of each library that runs here.
#[test]
#[ignore = "slow: other languages"]
fn the_page_names_what_is_run() {
    let page = fs::read_to_string([env!("CARGO_MANIFEST_DIR"), "docs/clients.md"].join("/")).unwrap();
    let answers: Vec<_> = ANSWERS.lines().map(|line| format!("    {line}\n")).collect();
    assert!(page.contains(&answers.concat()));
    let cells: Vec<_> = page.lines().filter_map(|line| line.strip_prefix('|')?.split(" | ").last()).collect();
    let names = |version: &str| cells.iter().any(|cell| cell.split([' ', ',', '|']).any(|word| word == version));
    let lists = [path("requirements.txt"), path("package.json")].map(|list| fs::read_to_string(list).unwrap());
    // Lines such as fastapi==0.165.0 and "express": "5.3.0". The page need not name uvicorn, which only serves FastAPI.
    let mut fetched: Vec<_> = lists[0].lines().filter_map(|line| line.split_once("==")).collect();
    fetched.extend(lists[1].lines().filter_map(|line| line.trim().trim_matches(',').split_once(": ")).skip(3));
    for (name, version) in fetched.iter().filter(|(name, _)| *name != "uvicorn") {
        assert!(names(version.trim_matches('"')), "{name} {version}");
    }
    assert!(fetched.len() == 9, "{fetched:?}");
    let lock = fs::read_to_string([env!("CARGO_MANIFEST_DIR"), "Cargo.lock"].join("/")).unwrap();
    for crate_name in ["redis", "redis-cell-rs"] {
        let (_, rest) = lock.split_once(&format!("name = \"{crate_name}\"\nversion = \"")).unwrap();
        assert!(names(rest.split('"').next().unwrap()), "{crate_name}");
    }
}

#[test]
#[ignore = "slow: other languages"]
fn redis_py_decides() {
    redis_py().for_each(|example| decides_with_a_server(&example));
}

#[test]
#[ignore = "slow: other languages"]
fn redis_py_decides_in_time_without_an_answer() {
    redis_py().for_each(|example| {
        decides_on_an_error(&example);
        decides_without_an_answer(&example);
    });
}

fn redis_py() -> impl Iterator<Item = Example> {
    ["redis_py.py", "redis_asyncio.py"].into_iter().flat_map(|file| [debian_python(file), pypi_python(file)]).flatten()
}

/// node-redis and ioredis reconnect at times of their own choice. Their decisions without an answer are tested below,
/// with Express.
#[test]
#[ignore = "slow: other languages"]
fn node_redis_and_ioredis_decide() {
    for example in [debian_node("node_redis.js"), npm_node("node_redis.js"), npm_node("ioredis.js")] {
        example.inspect(decides_with_a_server).inspect(decides_on_an_error);
    }
}

#[test]
#[ignore = "slow: other languages"]
fn phpredis_and_predis_decide_and_decide_in_time_without_an_answer() {
    [phpredis(), predis()].iter().flatten().for_each(decides);
    php_server().for_each(|example| serves_in_time_without_redis(&example));
}

#[test]
#[ignore = "slow: other languages"]
fn redis_rb_decides_and_decides_in_time_without_an_answer() {
    redis_rb(&["redis_rb.rb"]).iter().for_each(decides);
}

#[test]
#[ignore = "slow: other languages"]
fn hiredis_decides_and_decides_in_time_without_an_answer() {
    hiredis("hiredis", "").iter().for_each(decides);
}

#[test]
#[ignore = "slow: other languages"]
fn redigo_decides_and_decides_in_time_without_an_answer() {
    redigo().for_each(|example| {
        decides(&example);
        serves_in_time_without_redis(&example);
    });
}

/// `JEDIS` is a class path with Jedis and its dependencies; no registry was found that has them.
#[test]
#[ignore = "slow: other languages"]
fn jedis_decides_and_decides_in_time_without_an_answer() {
    let (Ok(jedis), true) = (std::env::var("JEDIS"), found(Command::new("java").arg("-version"))) else {
        println!("left out: there is no java, or no class path in JEDIS");
        return;
    };
    decides(&Example::new("java", &["-cp", &jedis, "Jedis.java"]));
}

#[test]
#[ignore = "slow: other languages"]
fn redis_rs_decides_and_decides_in_time_without_an_answer() {
    let client = |port: u16| redis::Client::open(format!("redis://127.0.0.1:{port}/")).unwrap();
    let answers = |port: u16, fail| {
        let pool = redis_rs::Pool::new(client(port), TIMEOUT);
        let answer =
            |quantity| pool.ask(fail, |connection| redis_rs::throttle(connection, "user123", (2, 1, 60), quantity));
        [1, 1, 1, 1, 4].map(|quantity| line(answer(quantity)) + "\n").concat()
    };
    assert_eq!(answers(Server::start().port, Fail::Open), ANSWERS);
    for (fail, without_an_answer) in [(Fail::Open, "200"), (Fail::Closed, "503 Retry-After: 1")] {
        let server = Server::start();
        assert_two_were_lost(&answers(losing(server.port, 1, 2), fail), without_an_answer);
    }
    let mut server = Server::start();
    let pool = redis_rs::Pool::new(server.client(), Duration::from_millis(100));
    let status = |fail| {
        let start = Instant::now();
        let answer = pool.ask(fail, |connection| redis_rs::throttle(connection, "user123", (2, 1, 60), 1));
        assert!(start.elapsed() < BOUND, "{:?}", start.elapsed());
        answer.0
    };
    signal(server.pid(), "STOP");
    assert_eq!([Fail::Open, Fail::Closed].map(status), [200, 503]);
    server.kill();
    assert_eq!([Fail::Open, Fail::Closed].map(status), [200, 503]);
    server.restart();
    assert!(eventually(BOUND, || (status(Fail::Closed) == 200).then_some(())).is_some());
}

#[test]
#[ignore = "slow: other languages"]
fn redis_cell_rs() {
    let server = Server::start();
    let mut connection = server.connect();
    let policy = Policy::from_tokens_per_minute(1).max_burst(2);
    let mut throttle =
        |policy: Policy| -> RedisResult<_> { redis_cell_rs::throttle(&mut connection, "user123", &policy) };
    for expected in ANSWERS.lines().take(4) {
        assert_eq!(line(throttle(policy).unwrap()), expected);
    }
    // The crate cannot parse the reply to a call that will never be allowed; it is the same with brandur's redis-cell.
    let key = Key::from("user123");
    let policy = policy.apply_tokens(4);
    let error = redis::Cmd::from(Cmd::new(&key, &policy)).query::<Verdict>(&mut server.connect()).unwrap_err();
    assert!(error.to_string().contains("retry_after"), "{error}");
}

#[test]
#[ignore = "slow: other languages"]
fn redis_cell_rs_refuses_a_call_for_more_than_the_limit_even_if_it_fails_open() {
    let server = Server::start();
    let pool = redis_rs::Pool::new(server.client(), TIMEOUT);
    for (apply, status) in [(4, 429), (3, 200), (usize::MAX, 429)] {
        let policy = Policy::from_tokens_per_minute(1).max_burst(2).apply_tokens(apply);
        let answer = pool.ask(Fail::Open, |connection| redis_cell_rs::throttle(connection, "user123", &policy));
        assert_eq!(answer.0, status, "{apply}: {answer:?}");
    }
}

#[test]
#[ignore = "slow: other languages"]
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

/// docs/clients.md promises that a pipeline takes less than half of the time that the same calls take one by one.
/// Between two machines, it saves far more.
#[test]
#[ignore = "slow: other languages"]
fn calls_in_a_pipeline_take_less_than_half_of_the_time() {
    for example in [debian_python("pipeline.py"), pypi_python("pipeline.py")].into_iter().flatten() {
        let server = Server::start();
        let faster = eventually(BOUND, || {
            run::<()>(&mut server.connect(), "FLUSHALL").unwrap();
            let output = example.output(server.port);
            let (allowed, times) = output.split_once('\n').unwrap();
            assert_eq!(allowed, "allowed: 1000 of 1000");
            let times: Vec<u32> = times.split(' ').filter_map(|word| word.parse().ok()).collect();
            // Other tests slow both down, so it may take several attempts.
            (2 * times[0] < times[1]).then_some(())
        });
        assert!(faster.is_some());
    }
}

#[test]
#[ignore = "slow: other languages"]
fn an_error_in_a_pipeline_is_no_allowed_call() {
    for example in [debian_python("pipeline.py"), pypi_python("pipeline.py")].into_iter().flatten() {
        let server = Server::start();
        run::<()>(&mut server.connect(), "RPUSH user:7 x").unwrap();
        // This key fails one call of the pipeline. Afterwards, the program makes the calls one by one, and ends at this
        // key.
        let output = example.command(server.port).output().unwrap();
        assert!(output.stdout.starts_with(b"allowed: 999 of 1000\n"), "{example:?}: {output:?}");
    }
}

#[test]
#[ignore = "slow: Sentinel waits"]
fn a_call_through_a_stuck_sentinel_fails_in_time() {
    for example in [debian_python("sentinel.py"), pypi_python("sentinel.py")].into_iter().flatten() {
        // The system accepts connections for a program that never reads them.
        let stuck = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let example = example.with("SENTINEL_PORT", &stuck.local_addr().unwrap().port().to_string());
        let mut process = Process::start(&mut example.command(0));
        let ended = eventually(BOUND / 2, || process.0.try_wait().unwrap());
        assert!(ended.is_some_and(|ended| !ended.success()), "{example:?}: {ended:?}");
    }
}

/// A server with the most clients that it accepts may take its time to close a connection.
#[test]
#[ignore = "slow: other languages"]
fn phpredis_predis_and_hiredis_ask_a_full_server_for_a_second_however_slow_it_is() {
    side_by_side([phpredis(), predis(), hiredis("hiredis", "")].into_iter().flatten(), |example| {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        spawn(move || {
            for connection in listener.incoming() {
                sleep(Duration::from_millis(100));
                drop(connection);
            }
        });
        let start = Instant::now();
        let printed = example.with("FAIL", "open").output(port);
        assert!(start.elapsed() < BOUND / 2, "{example:?}: {:?} for five calls", start.elapsed());
        let lines: Vec<_> = printed.lines().map(str::trim_end).collect();
        assert_eq!(lines, ["503 Retry-After: 1"; 5], "{example:?}");
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

/// A request may state its own size. One that is no quantity must neither give tokens back, nor get an error from the
/// server and be let through because the call fails open.
#[test]
#[ignore = "slow: other languages"]
fn a_quantity_from_outside_gives_nothing_back_and_does_not_fail_open() {
    let python = "
import asyncio, math, redis_asyncio, redis_py
for throttle in redis_py.throttle, lambda *words, **named: asyncio.run(redis_asyncio.throttle(*words, **named)):
    for quantity in -1, 2**63, 1.5, math.nan, '1':
        try:
            print(throttle(None, 'user123', (2, 1, 60), quantity=quantity, fail='open'))
        except (ValueError, TypeError):
            print('refused')";
    for example in python_code(python) {
        assert_eq!(example.output(0), "refused\n".repeat(10), "{example:?}");
    }
    let node = "
const { throttle } = require('./node_redis.js');
for (const quantity of [-1, 2 ** 63, 1.5, NaN, '1']) {
  try {
    throttle({}, 'user123', [2, 1, 60], 'open', quantity).then(console.log);
  } catch (error) {
    console.log('refused');
  }
}";
    for example in [debian_node("-e"), npm_node("-e")].into_iter().flatten() {
        assert_eq!(example.with_argument(node).output(0), "refused\n".repeat(5), "{example:?}");
    }
    let ruby = "
[-1, 2**63, 1.5, '1'].each do |quantity|
  puts throttle(nil, 'user123', 2, 1, 60, quantity, fail: 'open').inspect
rescue ArgumentError
  puts 'refused'
end";
    if let Some(example) = redis_rb(&["-r", "./redis_rb.rb", "-e", ruby]) {
        assert_eq!(example.output(0), "refused\n".repeat(4));
    }
    for (example, file) in [(phpredis(), "phpredis.php"), (predis(), "predis.php")] {
        let code = format!(
            "require '{file}';
            foreach ([-1, 2 ** 63, 'x'] as $quantity) {{
                try {{ echo throttle('user123', 2, 1, 60, 'open', $quantity)[0]; }} catch (Error) {{ echo \"refused\\n\"; }}
            }}"
        );
        let server = Server::start();
        let refused = |_| Example::new("php", &["-r", &code]).output(server.port);
        assert!(example.map(refused).is_none_or(|output| output.ends_with("\nrefused\nrefused\nrefused\n")), "{file}");
    }
    let go = "package main
import (\"fmt\"; \"os\")
func init() {
    fmt.Println(throttle(nil, \"user123\", 2, 1, 60, -1, \"open\"))
    os.Exit(0)
}";
    if let Some(example) = redigo_with("redigo-quantity", go) {
        assert_eq!(example.output(0), "400 []\n");
    }
    let main = r#"int main(void) { printf("%d", throttle(NULL, "user123", 2, 1, 60, -1, OPEN).status); }"#;
    if let Some(example) = hiredis("hiredis-quantity", main) {
        assert_eq!(example.output(0), "400");
    }
    let server = Server::start();
    let pool = redis_rs::Pool::new(server.client(), TIMEOUT);
    for quantity in [4, i64::MAX as u64, u64::MAX] {
        let call = |connection: &mut _| redis_rs::throttle(connection, "user123", (2, 1, 60), quantity);
        assert_eq!(pool.ask(Fail::Open, call).0, 429, "{quantity}");
    }
}

/// A call may panic in a thread that goes on, as the threads of many web servers do.
#[test]
#[ignore = "slow: other languages"]
fn a_panic_in_a_call_takes_no_connection_from_the_pool_of_redis_rs() {
    let server = Server::start();
    let pool = redis_rs::Pool::new(server.client(), TIMEOUT);
    // This panic prints nothing.
    let panics = || pool.ask(Fail::Open, |_| std::panic::resume_unwind(Box::new("a mistake of the caller")));
    for _ in 0..30 {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).unwrap_err();
    }
    let answer = pool.ask(Fail::Closed, |connection| redis_rs::throttle(connection, "user123", (2, 1, 60), 1));
    assert_eq!(answer.0, 200);
}

/// The node announces a proxy's port as its own, and the proxy loses the answer to the first call. No setting keeps
/// redis-py 4.3.4 from repeating such a call in a cluster: for this version, the test only checks that the call ends in
/// time.
#[test]
#[ignore = "slow: a cluster"]
fn a_call_in_a_cluster_that_gets_no_answer_takes_once_and_fails_in_time() {
    for (example, takes_once) in [(debian_python("cluster.py"), false), (pypi_python("cluster.py"), true)] {
        let Some(example) = example else { continue };
        let node = free_port();
        let proxy = losing(node, 0, usize::MAX);
        let announced = proxy.to_string();
        let settings = ["--cluster-enabled", "yes", "--cluster-announce-port", &announced];
        let _server = Server::start_with(&[&settings[..], &["--port", &node.to_string()]].concat());
        add_slots(&mut Client::open(("127.0.0.1", node)).unwrap().get_connection().unwrap(), 0..SLOTS);
        let mut connection = Client::open(("127.0.0.1", node)).unwrap().get_connection().unwrap();
        wait_until("the cluster is up", || {
            run::<String>(&mut connection, "CLUSTER INFO").unwrap().contains("state:ok")
        });
        let mut process = Process::start(&mut example.command(proxy));
        let ended = eventually(BOUND, || process.0.try_wait().unwrap());
        let success = ended.unwrap_or_else(|| panic!("{example:?} does not end")).success();
        let remaining = run::<[i64; 5]>(&mut connection, "CL.LOOK {user123}:minute 2 1 60").unwrap()[2];
        assert!(!takes_once || (remaining, success) == (2, false), "{example:?}: {remaining} remain, {success}");
    }
}

#[test]
#[ignore = "slow: other languages"]
fn an_applications_tests_have_a_server_of_their_own() {
    let Some(example) = debian_python("own_tests.py") else { return };
    let run = [env!("CARGO_MANIFEST_DIR"), "scripts/run"].join("/");
    let output = example.with("RUN", &run).command(0).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && said.contains("Ran 3 tests"), "{said}");
}

#[test]
#[ignore = "slow: other languages"]
fn an_http_server_answers_200_and_429_with_headers() {
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
                let numbers = body.split(|letter: char| !letter.is_ascii_digit()).filter(|number| !number.is_empty());
                let numbers: Vec<i64> = numbers.map(|number| number.parse().unwrap()).collect();
                let [3, left, retry, reset] = numbers[..] else { panic!("{body}") };
                let names = "\"limit\": 3, \"remaining\": LEFT, \"retry_after\": RETRY, \"reset_after\": RESET";
                let numbered = names.replace("LEFT", &left.to_string()).replace("RETRY", &retry.to_string());
                assert_eq!(body, format!("{{{}}}\n", numbered.replace("RESET", &reset.to_string())));
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
fn an_http_server_answers_in_time_when_redis_does_not() {
    http_server().for_each(|example| serves_in_time_without_redis(&example));
}

#[test]
#[ignore = "slow: other languages"]
fn flask_answers_in_time_when_redis_does_not() {
    flask().for_each(|example| serves_in_time_without_redis(&example));
}

#[test]
#[ignore = "slow: other languages"]
fn fastapi_answers_in_time_when_redis_does_not() {
    fastapi().for_each(|example| serves_in_time_without_redis(&example));
}

#[test]
#[ignore = "slow: other languages"]
fn express_answers_in_time_when_redis_does_not() {
    express().for_each(|example| serves_in_time_without_redis(&example));
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

/// An address that the caller makes up is ignored, and any header of a proxy, however malformed, gets an answer.
#[test]
#[ignore = "slow: other languages"]
fn an_http_server_flask_and_fastapi_limit_an_address_behind_their_own_proxy() {
    let server = Server::start();
    for (example, prefix) in [(http_server().next(), "address"), (flask().next(), "hello"), (fastapi().next(), "GET /")]
    {
        for proxy in ["127.0.0.1", "192.0.2.1"] {
            let Some(example) = &example else { return };
            let http = Http::start(&example.with("PROXY", proxy), server.port);
            for (headers, trusting) in [
                ("", "127.0.0.1"),
                ("X-Forwarded-For: 192.0.2.7\r\n", "192.0.2.7"),
                ("X-Forwarded-For: 10.0.0.1, 192.0.2.7\r\n", "192.0.2.7"),
                ("X-Forwarded-For: 10.0.0.1\r\nX-Forwarded-For: 192.0.2.7\r\n", "192.0.2.7"),
                ("X-Forwarded-For: 192.0.2.7:5678\r\n", "192.0.2.7"),
                ("X-Forwarded-For: ::ffff:192.0.2.7\r\n", "192.0.2.7"),
                ("X-Forwarded-For: 64:ff9b::192.0.2.7\r\n", "192.0.2.7"),
                ("X-Forwarded-For: 2001:db8:1:2:3::4\r\n", "2001:db8:1:2::/64"),
                ("X-Forwarded-For: [2001:db8:1:2:3::4]:80\r\n", "2001:db8:1:2::/64"),
                ("X-Forwarded-For: fe80::1%eth0\r\n", "fe80::/64"),
                ("X-Forwarded-For: unknown\r\n", "127.0.0.1"),
                ("X-Forwarded-For: 192.0.2.7,\r\n", "127.0.0.1"),
                ("X-Forwarded-For:\r\n", "127.0.0.1"),
                ("X-Forwarded-For: [\r\n", "127.0.0.1"),
            ] {
                assert_eq!(http.get("/", headers).0, 200, "{example:?}, {headers}");
                let key = format!("{prefix}:{}", if proxy == "127.0.0.1" { trusting } else { "127.0.0.1" });
                assert_eq!(run::<Vec<String>>(&mut server.connect(), "KEYS *").unwrap(), [key], "{headers}");
                run::<()>(&mut server.connect(), "FLUSHALL").unwrap();
            }
        }
    }
}

#[test]
#[ignore = "slow: other languages"]
fn a_proxy_on_a_unix_socket_is_known_if_it_is_said_to_be_there() {
    let code = "
from addresses import limited_address
print(limited_address(None, ['10.0.0.1, 192.0.2.7']), limited_address('', []))";
    for example in python_code(code) {
        assert_eq!(example.output(0), "unix unix\n");
        assert_eq!(example.with("PROXY", "unix").output(0), "192.0.2.7 unix\n");
    }
}

/// A server on IPv6 that also accepts IPv4 sees a proxy of IPv4 by an address of IPv6.
#[test]
#[ignore = "slow: other languages"]
fn a_proxy_of_ipv4_is_known_by_its_mapped_address() {
    let code = "
from addresses import limited_address
for peer in '::ffff:192.0.2.1', '::ffff:192.0.2.2', '64:ff9b::192.0.2.1':
    print(limited_address(peer, ['192.0.2.7']))";
    for example in python_code(code) {
        assert_eq!(example.with("PROXY", "192.0.2.1").output(0), "192.0.2.7\n192.0.2.2\n192.0.2.1\n");
    }
}

/// Callers' addresses, and the part of each that an example limits. Python's examples have tests of their own.
const ADDRESSES: [(&str, &str); 5] = [
    ("192.0.2.7", "192.0.2.7"),
    ("::ffff:192.0.2.7", "192.0.2.7"),
    ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
    ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
    ("2001:db8::4", "2001:db8::/64"),
];

#[test]
#[ignore = "slow: other languages"]
fn express_limits_the_network_of_an_ipv6_caller() {
    for example in express() {
        let server = Server::start();
        let http = Http::start(&example.with("PROXY", "127.0.0.1"), server.port);
        for (address, limited) in ADDRESSES {
            assert_eq!(http.get("/", &format!("X-Forwarded-For: 10.0.0.1, {address}\r\n")).0, 200, "{address}");
            let key = format!("hello:{}", limited.replace("db8::/64", "db8:0:0::/64"));
            assert_eq!(run::<Vec<String>>(&mut server.connect(), "KEYS *").unwrap(), [key], "{address}");
            run::<()>(&mut server.connect(), "FLUSHALL").unwrap();
        }
    }
}

#[test]
#[ignore = "slow: other languages"]
fn phpredis_and_predis_limit_the_network_of_an_ipv6_caller() {
    for (example, file) in [(phpredis(), "phpredis.php"), (predis(), "predis.php")] {
        let Some(_) = example else { continue };
        let words = ADDRESSES.map(|(address, _)| address).join("', '");
        let code =
            format!("require '{file}'; foreach (['{words}'] as $address) {{ echo network($address), \"\\n\"; }}");
        let output = Example::new("php", &["-r", &code]).output(Server::start().port);
        let limited = ADDRESSES.map(|(_, limited)| format!("{limited}\n")).concat();
        assert_eq!(output, ANSWERS.to_string() + &limited);
    }
}

#[test]
#[ignore = "slow: other languages"]
fn redigo_limits_the_network_of_an_ipv6_caller() {
    let words =
        ADDRESSES.map(|(address, _)| format!("[{address}]:80")).join("\", \"").replace("[192.0.2.7]", "192.0.2.7");
    let code = format!(
        "package main
import (\"fmt\"; \"net/http\"; \"os\")
func init() {{
    for _, peer := range []string{{\"{words}\"}} {{ fmt.Println(address(&http.Request{{RemoteAddr: peer}})) }}
    os.Exit(0)
}}"
    );
    let Some(example) = redigo_with("redigo-addresses", &code) else { return };
    assert_eq!(example.output(0), ADDRESSES.map(|(_, limited)| format!("{limited}\n")).concat());
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
    let code = "
import flask, flask_app
admin = flask.Blueprint('admin', 'admin')
@admin.get('/admin')
@flask_app.limited((0, 1, 60), fail='closed')
def hello():
    return 'Welcome'
flask_app.app.register_blueprint(admin)
client = flask_app.app.test_client()
print(client.get('/').status_code, client.get('/admin').status_code)";
    let program = ["-c", code];
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

/// Twenty of forty calls get a connection. They wait longer for the server than the others wait for a connection.
#[test]
#[ignore = "slow: other languages"]
fn a_full_pool_of_redis_py_refuses_a_call_that_fails_open() {
    let threads = "
from concurrent.futures import ThreadPoolExecutor
from redis_py import Pool, throttle
pool = Pool()
input()
with ThreadPoolExecutor(40) as threads:
    answers = threads.map(lambda _: throttle(pool, 'user123', (2, 1, 60), fail='open')[0], range(40))
    print(sorted(answers))";
    let tasks = "
import asyncio
from redis_asyncio import Pool, throttle
async def main():
    pool = Pool()
    await pool.open()
    input()
    calls = [throttle(pool, 'user123', (2, 1, 60), fail='open') for _ in range(40)]
    print(sorted(status for status, _ in await asyncio.gather(*calls)))
asyncio.run(main())";
    for example in [threads, tasks].into_iter().flat_map(python_code) {
        let server = Server::start();
        let mut command = example.with("TIMEOUT", "3").command(server.port);
        let mut process = Process(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
        // The pool opens all its connections at the start.
        let connected = || info(&mut server.connect(), "connected_clients").parse::<u32>().unwrap() > 20;
        wait_until("20 connections", connected);
        signal(server.pid(), "STOP");
        process.0.stdin.take().unwrap().write_all(b"\n").unwrap();
        let mut statuses = String::new();
        process.0.stdout.take().unwrap().read_to_string(&mut statuses).unwrap();
        let expected: Vec<_> = [[200; 20], [503; 20]].concat();
        assert_eq!(statuses.trim(), format!("{expected:?}"), "{example:?}");
    }
}

/// Every turn of the event loop takes longer than a call may wait.
#[test]
#[ignore = "slow: other languages"]
fn an_event_loop_that_is_late_does_not_lose_an_answer() {
    let code = "
import asyncio, time
from redis_asyncio import Pool, throttle
async def main():
    pool = Pool()
    await pool.open()
    call = asyncio.ensure_future(throttle(pool, 'user123', (2, 1, 60), fail='open'))
    while not call.done():
        time.sleep(0.2)
        await asyncio.sleep(0)
    print(call.result()[1]['X-RateLimit-Remaining'])
asyncio.run(main())";
    for example in python_code(code) {
        assert_eq!(example.with("TIMEOUT", "0.1").output(Server::start().port), "2\n", "{example:?}");
    }
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
        assert_eq!(counts, expected, "{example:?}");
    }
}

#[test]
#[ignore = "slow: other languages"]
fn an_event_loop_of_node_that_is_late_does_not_lose_an_answer() {
    let code = "
const { connect, throttle } = require(process.env.CLIENT);
connect().then((client) => {
  let late = true;
  throttle(client, 'user123', [2, 1, 60], 'open').then(([, headers]) => {
    console.log(headers['X-RateLimit-Remaining']);
    late = false;
  });
  const turn = () => {
    for (const end = Date.now() + 200; Date.now() < end;);
    if (late) setImmediate(turn);
    else process.exit();
  };
  turn();
});";
    for (file, npm) in [("./node_redis.js", false), ("./node_redis.js", true), ("./ioredis.js", true)] {
        let node = if npm { npm_node("-e") } else { debian_node("-e") };
        let Some(example) = node else { continue };
        let example = example.with_argument(code).with("CLIENT", file).with("TIMEOUT", "0.1");
        assert_eq!(example.output(Server::start().port), "2\n", "{example:?}");
    }
}

/// Returns a program of the test's own, which imports the examples.
fn python_code(code: &str) -> impl Iterator<Item = Example> + use<> {
    let program = ["-c", code];
    [debian_python_with("python3-redis", "redis", &program), pypi_python_with(&program)].into_iter().flatten()
}

fn decides(example: &Example) {
    decides_with_a_server(example);
    decides_on_an_error(example);
    decides_without_an_answer(example);
}

fn decides_with_a_server(example: &Example) {
    assert_eq!(example.output(Server::start().port), ANSWERS, "{example:?}");
}

/// Checks that an error in place of the reply is a call without a reply.
fn decides_on_an_error(example: &Example) {
    let server = Server::start();
    run::<()>(&mut server.connect(), "RPUSH user123 x").unwrap();
    for (fail, without_an_answer) in [("open", "200"), ("closed", "503 Retry-After: 1")] {
        let printed = example.with("FAIL", fail).output(server.port);
        let lines: Vec<_> = printed.lines().map(str::trim_end).collect();
        assert_eq!(lines, [without_an_answer; 5], "{example:?}");
    }
}

/// Checks the decisions on a network that loses an answer and a call, and with a server that is stopped or gone.
fn decides_without_an_answer(example: &Example) {
    for (fail, without_an_answer) in [("open", "200"), ("closed", "503 Retry-After: 1")] {
        let example = example.with("FAIL", fail);
        let mut server = Server::start();
        assert_two_were_lost(&example.output(losing(server.port, 1, 2)), without_an_answer);
        if fail == "open" {
            signal(server.pid(), "STOP")
        } else {
            server.kill()
        }
        let start = Instant::now();
        let printed = example.with("TIMEOUT", "0.1").output(server.port);
        assert!(start.elapsed() < BOUND, "{example:?}: {:?}", start.elapsed());
        let lines: Vec<_> = printed.lines().map(str::trim_end).collect();
        assert_eq!(lines, [without_an_answer; 5], "{example:?}");
    }
}

/// Checks the output. The second call took its token exactly once: the fourth gets the last one. The third never
/// reached the server.
fn assert_two_were_lost(printed: &str, without_an_answer: &str) {
    let lines: Vec<_> = printed.lines().map(str::trim_end).collect();
    let expected = [
        "200 X-RateLimit-Limit: 3, X-RateLimit-Remaining: 2,",
        without_an_answer,
        without_an_answer,
        "200 X-RateLimit-Limit: 3, X-RateLimit-Remaining: 0,",
        "429 X-RateLimit-Limit: 3, X-RateLimit-Remaining: 0,",
    ];
    assert_eq!(lines.len(), 5, "{printed}");
    for (line, expected) in lines.into_iter().zip(expected) {
        let same = if expected.ends_with(',') { line.starts_with(expected) } else { line == expected };
        assert!(same, "{printed}");
    }
}

/// Returns the port of a proxy to this server. The proxy counts the calls from 0. It loses the answer to one, and
/// closes the connection at another.
fn losing(server: u16, lost: usize, closed: usize) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let calls = Arc::new(AtomicUsize::new(0));
    // The thread accepts connections until the tests end.
    spawn(move || {
        for client in listener.incoming().flatten() {
            let calls = calls.clone();
            spawn(move || pass_on(client, server, &calls, (lost, closed)));
        }
    });
    port
}

fn pass_on(mut client: TcpStream, server: u16, calls: &AtomicUsize, (answer, closed): (usize, usize)) {
    let mut server = TcpStream::connect(("127.0.0.1", server)).unwrap();
    let lost = Arc::new(AtomicBool::new(false));
    let (mut from, mut to, losing) = (server.try_clone().unwrap(), client.try_clone().unwrap(), lost.clone());
    spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(length @ 1..) = from.read(&mut bytes) {
            if !losing.load(Ordering::Relaxed) && to.write_all(&bytes[..length]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
    let mut bytes = [0; 4096];
    while let Ok(length @ 1..) = client.read(&mut bytes) {
        if bytes[..length].windows(11).any(|word| word == b"CL.THROTTLE") {
            let call = calls.fetch_add(1, Ordering::Relaxed);
            if call == closed {
                break;
            }
            lost.fetch_or(call == answer, Ordering::Relaxed);
        }
        if server.write_all(&bytes[..length]).is_err() {
            break;
        }
    }
    let _ = server.shutdown(Shutdown::Both);
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

/// Formats an answer as the examples print it.
fn line<T: std::fmt::Display>((status, headers): (u16, Vec<(&str, T)>)) -> String {
    let headers: Vec<_> = headers.into_iter().map(|(name, value)| format!("{name}: {value}")).collect();
    format!("{status} {}", headers.join(", "))
}
