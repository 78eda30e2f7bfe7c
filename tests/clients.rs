//! The examples in tests/clients do what a user who copies them expects, with the client libraries of Debian 12 and
//! with the newest of PyPI and npm, which tests/clients/requirements.txt and package.json name.
//!
//! A test whose language or library is missing is left out, and says so. scripts/test installs what is small, and sets
//! `REQUIRE_ALL`: then such a test fails.

#[allow(dead_code, reason = "main is for the reader who copies the file")]
mod redis_cell_rs;

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::spawn;
use std::time::{Duration, Instant};

use ::redis_cell_rs::{AllowedDetails, BlockedDetails, Cmd, Key, Policy, Verdict};
use redis::RedisResult;

use crate::support::needs::left_out;
use crate::support::programs::{redis_rs, signal};
use crate::support::{Process, Server, eventually, free_port, run};

/// What the examples print: three at once and one a minute, and a last call that asks for four.
const ANSWERS: &str = "\
200 X-RateLimit-Limit: 3, X-RateLimit-Remaining: 2, X-RateLimit-Reset: 60
200 X-RateLimit-Limit: 3, X-RateLimit-Remaining: 1, X-RateLimit-Reset: 120
200 X-RateLimit-Limit: 3, X-RateLimit-Remaining: 0, X-RateLimit-Reset: 180
429 X-RateLimit-Limit: 3, X-RateLimit-Remaining: 0, X-RateLimit-Reset: 180, Retry-After: 60
429 X-RateLimit-Limit: 3, X-RateLimit-Remaining: 0, X-RateLimit-Reset: 180
";
/// A busy machine's server does not always answer within the examples' own tenth of a second.
const TIMEOUT: Duration = Duration::from_secs(2);
/// What an example may take that starts, and whose calls have no answer.
const BOUND: Duration = Duration::from_secs(20);

/// The answers, and each library's version as it was run.
#[test]
fn the_page_names_what_is_run() {
    let page = fs::read_to_string([env!("CARGO_MANIFEST_DIR"), "docs/clients.md"].join("/")).unwrap();
    let answers: Vec<_> = ANSWERS.lines().map(|line| format!("    {line}\n")).collect();
    assert!(page.contains(&answers.concat()));
    let cells: Vec<_> = page.lines().filter_map(|line| line.strip_prefix('|')?.split(" | ").last()).collect();
    let names = |version: &str| cells.iter().any(|cell| cell.split([' ', ',', '|']).any(|word| word == version));
    let lists = [path("requirements.txt"), path("package.json")].map(|list| fs::read_to_string(list).unwrap());
    // fastapi==0.165.0, "express": "5.3.0", but uvicorn only serves what FastAPI answers.
    let mut fetched: Vec<_> = lists[0].lines().filter_map(|line| line.split_once("==")).collect();
    fetched.extend(lists[1].lines().filter_map(|line| line.trim().trim_matches(',').split_once(": ")).skip(3));
    for (name, version) in fetched.iter().filter(|(name, _)| *name != "uvicorn") {
        assert!(names(version.trim_matches('"')), "{name} {version}");
    }
    assert!(fetched.len() == 7, "{fetched:?}");
    let lock = fs::read_to_string([env!("CARGO_MANIFEST_DIR"), "Cargo.lock"].join("/")).unwrap();
    for crate_name in ["redis", "redis-cell-rs"] {
        let (_, rest) = lock.split_once(&format!("name = \"{crate_name}\"\nversion = \"")).unwrap();
        assert!(names(rest.split('"').next().unwrap()), "{crate_name}");
    }
}

#[test]
fn redis_py_decides() {
    redis_py().for_each(|example| decides_with_a_server(&example));
}

#[test]
fn redis_py_decides_in_time_without_an_answer() {
    redis_py().for_each(|example| decides_without_an_answer(&example));
}

fn redis_py() -> impl Iterator<Item = Example> {
    ["redis_py.py", "redis_asyncio.py"].into_iter().flat_map(|file| [debian_python(file), pypi_python(file)]).flatten()
}

/// They connect again at times of their own: with Express, below, is tested how they decide without an answer.
#[test]
fn node_redis_and_ioredis_decide() {
    for example in [debian_node("node_redis.js"), npm_node("node_redis.js"), npm_node("ioredis.js")] {
        example.inspect(decides_with_a_server);
    }
}

#[test]
fn phpredis_and_predis_decide_and_decide_in_time_without_an_answer() {
    let phpredis = Example::new("php", &["phpredis.php"]);
    if installed("php-cli and php-redis", Command::new("php").args(["-r", "new Redis();"])) {
        decides(&phpredis);
    }
    let predis = Example::new("php", &["predis.php"]);
    if installed("php-cli and php-predis", Command::new("php").args(["-r", "require 'Predis/Autoloader.php';"])) {
        decides(&predis);
    }
}

#[test]
fn redis_rb_decides_and_decides_in_time_without_an_answer() {
    if installed("ruby-redis", Command::new("ruby").args(["-e", "require 'redis'"])) {
        decides(&Example::new("ruby", &["redis_rb.rb"]));
    }
}

#[test]
fn hiredis_decides_and_decides_in_time_without_an_answer() {
    let header = ["-E", "-include", "hiredis/hiredis.h", "-x", "c", "/dev/null"];
    if installed("libhiredis-dev", Command::new("cc").args(header)) {
        let program = target("hiredis");
        let mut compile = Command::new("cc");
        compile
            .args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"])
            .args([&program, &path("hiredis.c")])
            .arg("-lhiredis");
        assert!(compile.status().unwrap().success());
        decides(&Example::new(&program, &[]));
        fs::remove_file(program).unwrap();
    }
}

/// Go is large: scripts/test does not install it.
#[test]
fn redigo_decides_and_decides_in_time_without_an_answer() {
    let go = |arguments: &[&str]| {
        let mut go = Command::new("go");
        go.args(arguments).env("GO111MODULE", "off").env("GOPATH", "/usr/share/gocode").env("GOCACHE", target("go"));
        go
    };
    if !found(&mut go(&["list", "github.com/gomodule/redigo/redis"])) {
        println!("left out: golang-go and golang-github-gomodule-redigo-dev are not installed");
        return;
    }
    let program = target("redigo");
    let mut build = go(&["build", "-o"]);
    assert!(build.args([&program, &path("redigo.go")]).status().unwrap().success());
    let example = Example::new(&program, &[]);
    decides(&example);
    serves_in_time_without_redis(&example);
    fs::remove_file(program).unwrap();
}

/// No registry here has Jedis: `JEDIS` is a class path with its library and those that it needs.
#[test]
fn jedis_decides_and_decides_in_time_without_an_answer() {
    let (Ok(jedis), true) = (std::env::var("JEDIS"), found(Command::new("java").arg("-version"))) else {
        println!("left out: there is no java, or no class path in JEDIS");
        return;
    };
    decides(&Example::new("java", &["-cp", &jedis, "Jedis.java"]));
}

#[test]
fn redis_rs_decides_and_decides_in_time_without_an_answer() {
    let answers = |port: u16, open: bool| {
        let client = redis::Client::open(format!("redis://127.0.0.1:{port}/")).unwrap();
        let mut limiter = redis_rs::Limiter::new(client, TIMEOUT, open);
        [1, 1, 1, 1, 4].map(|quantity| line(limiter.throttle("user123", (2, 1, 60), quantity)) + "\n").concat()
    };
    assert_eq!(answers(Server::start().port, true), ANSWERS);
    for (open, without_an_answer) in [(true, "200"), (false, "503 Retry-After: 1")] {
        let server = Server::start();
        assert_two_were_lost(&answers(losing(server.port), open), without_an_answer);
    }
    let mut server = Server::start();
    let mut limiter = redis_rs::Limiter::new(server.client(), Duration::from_millis(100), false);
    let mut refuses = || {
        let start = Instant::now();
        assert_eq!(limiter.throttle("user123", (2, 1, 60), 1).0, 503);
        assert!(start.elapsed() < BOUND, "{:?}", start.elapsed());
    };
    signal(server.pid(), "STOP");
    refuses();
    server.kill();
    refuses();
    server.restart();
    assert_eq!(redis_rs::Limiter::new(server.client(), TIMEOUT, false).throttle("user123", (2, 1, 60), 1).0, 200);
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

/// As the page says. Elsewhere than on one machine, it is far more.
#[test]
fn calls_in_a_pipeline_take_less_than_half_of_the_time() {
    for example in [debian_python("pipeline.py"), pypi_python("pipeline.py")].into_iter().flatten() {
        let server = Server::start();
        let faster = eventually(BOUND, || {
            run::<()>(&mut server.connect(), "FLUSHALL").unwrap();
            let output = example.output(server.port);
            let (allowed, times) = output.split_once('\n').unwrap();
            assert_eq!(allowed, "allowed: 1000 of 1000");
            let times: Vec<u32> = times.split(' ').filter_map(|word| word.parse().ok()).collect();
            // Other tests take time from both.
            (2 * times[0] < times[1]).then_some(())
        });
        assert!(faster.is_some());
    }
}

#[test]
fn an_applications_tests_have_a_server_of_their_own() {
    let Some(example) = debian_python("own_tests.py") else { return };
    let run = [env!("CARGO_MANIFEST_DIR"), "scripts/run"].join("/");
    let output = example.with("RUN", &run).command(0).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && said.contains("Ran 3 tests"), "{said}");
}

#[test]
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
        // The IETF's draft, of the same five integers.
        let draft = [
            "RateLimit-Policy: \"address\";q=3;w=180".to_string(),
            format!("RateLimit: \"address\";r={remaining};t={more_in}"),
        ];
        assert_eq!(with(["RateLimit-Policy:", "RateLimit:"]), draft);
        assert_eq!(body, if status == 200 { "Hello\n" } else { "Too many requests\n" });
    }
}

/// Also a replica that is the only server left.
#[test]
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
            // The replica hears of a call after its answer.
            let shown = eventually(BOUND, || {
                let (status, body) = quota(http);
                assert_eq!(status, 200);
                let numbers = body.split(|letter: char| !letter.is_ascii_digit()).filter(|number| !number.is_empty());
                let numbers: Vec<i64> = numbers.map(|number| number.parse().unwrap()).collect();
                let [3, left, retry, reset] = numbers[..] else { panic!("{body}") };
                let names = "\"limit\": 3, \"remaining\": LEFT, \"retry_after\": RETRY, \"reset_after\": RESET";
                let numbered = names.replace("LEFT", &left.to_string()).replace("RETRY", &retry.to_string());
                assert_eq!(body, format!("{{{}}}\n", numbered.replace("RESET", &reset.to_string())));
                // Some seconds may have passed.
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
fn an_http_server_answers_in_time_when_redis_does_not() {
    for example in [debian_python("http_server.py"), pypi_python("http_server.py")].into_iter().flatten() {
        serves_in_time_without_redis(&example);
    }
}

#[test]
fn flask_answers_in_time_when_redis_does_not() {
    let flask = ["-m", "flask", "--app", "flask_app", "run", "--port", "PORT"];
    for python in [debian_python_with("python3-flask", "flask", &flask), pypi_python_with(&flask)] {
        python.inspect(serves_in_time_without_redis);
    }
}

#[test]
fn fastapi_answers_in_time_when_redis_does_not() {
    let uvicorn = ["-m", "uvicorn", "fastapi_app:app", "--port", "PORT"];
    let debian = debian_python_with("python3-fastapi and python3-uvicorn", "fastapi, uvicorn", &uvicorn);
    for python in [debian, pypi_python_with(&uvicorn)] {
        python.inspect(serves_in_time_without_redis);
    }
}

#[test]
fn express_answers_in_time_when_redis_does_not() {
    let Some(express) = npm_node("express_app.js") else { return };
    serves_in_time_without_redis(&express);
    serves_in_time_without_redis(&express.with("CLIENT", "./ioredis.js"));
}

/// A user by name, other callers by address, and none by what the caller makes up.
#[test]
fn an_http_server_limits_a_user_and_an_address_behind_its_own_proxy() {
    let server = Server::start();
    for proxy in ["127.0.0.1", "192.0.2.1"] {
        let Some(example) = debian_python("http_server.py") else { return };
        let http = Http::start(&example.with("PROXY", proxy), server.port);
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
            let (status, answer, _) = http.get("/", headers);
            assert_eq!(status, 200, "{headers}");
            let key = if proxy == "127.0.0.1" { trusting } else { else_ };
            let limit = if key == "user:alice" { "\"user\";q=10;w=60" } else { "\"address\";q=3;w=180" };
            assert!(answer.contains(&format!("RateLimit-Policy: {limit}")), "{answer:?}");
            assert_eq!(run::<Vec<String>>(&mut server.connect(), "KEYS *").unwrap(), [key], "{headers}");
            run::<()>(&mut server.connect(), "FLUSHALL").unwrap();
        }
    }
}

fn decides(example: &Example) {
    decides_with_a_server(example);
    decides_without_an_answer(example);
}

fn decides_with_a_server(example: &Example) {
    assert_eq!(example.output(Server::start().port), ANSWERS, "{example:?}");
}

/// With a network that loses an answer and a call; and with a server that is stopped or gone.
fn decides_without_an_answer(example: &Example) {
    for (fail, without_an_answer) in [("open", "200"), ("closed", "503 Retry-After: 1")] {
        let example = example.with("FAIL", fail);
        let mut server = Server::start();
        assert_two_were_lost(&example.output(losing(server.port)), without_an_answer);
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

/// The second call took its token, and once: the fourth gets the last. The third never came to the server.
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

/// The port of a way to this server that loses the answer to the second call, and breaks off at the third.
fn losing(server: u16) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let calls = Arc::new(AtomicUsize::new(0));
    // It waits for connections until the tests end.
    spawn(move || {
        for client in listener.incoming().flatten() {
            let calls = calls.clone();
            spawn(move || pass_on(client, server, &calls));
        }
    });
    port
}

fn pass_on(mut client: TcpStream, server: u16, calls: &AtomicUsize) {
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
            match calls.fetch_add(1, Ordering::Relaxed) {
                1 => lost.store(true, Ordering::Relaxed),
                2 => break,
                _ => {}
            }
        }
        if server.write_all(&bytes[..length]).is_err() {
            break;
        }
    }
    let _ = server.shutdown(Shutdown::Both);
}

/// An HTTP server of three at once and one a minute, which stays, and answers as chosen, whatever becomes of Redis.
fn serves_in_time_without_redis(example: &Example) {
    for (fail, unlimited) in [("open", 200), ("closed", 503)] {
        let mut server = Server::start();
        let http = Http::start(&example.with("FAIL", fail), server.port);
        // The status, and what is left if there is a limiter to say so.
        let get = || {
            let start = Instant::now();
            let (status, headers, _) = http.get("/", "");
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
        // The call without an answer has taken one token by now, or none, as its connection was closed.
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

/// An answer as the examples print it.
fn line<T: std::fmt::Display>((status, headers): (u16, Vec<(&str, T)>)) -> String {
    let headers: Vec<_> = headers.into_iter().map(|(name, value)| format!("{name}: {value}")).collect();
    format!("{status} {}", headers.join(", "))
}

/// A program of tests/clients, run in that folder.
#[derive(Clone, Debug)]
struct Example {
    program: PathBuf,
    /// PORT is the one to serve HTTP on.
    arguments: Vec<String>,
    environment: Vec<(&'static str, String)>,
}

impl Example {
    fn new(program: impl Into<PathBuf>, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(ToString::to_string).collect();
        Self { program: program.into(), arguments, environment: vec![("TIMEOUT", TIMEOUT.as_secs().to_string())] }
    }

    fn with(&self, name: &'static str, value: &str) -> Self {
        let mut with = self.clone();
        with.environment.push((name, value.to_string()));
        with
    }

    fn command(&self, redis: u16) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).current_dir(path("")).envs(self.environment.clone());
        command.env("REDIS_PORT", redis.to_string());
        command
    }

    /// What it prints, if it ends.
    fn output(&self, redis: u16) -> String {
        let mut command = self.command(redis);
        let mut process = Process(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
        let status = eventually(Duration::from_secs(120), || process.0.try_wait().unwrap());
        if !status.is_some_and(|status| status.success()) {
            process.0.kill().unwrap();
            panic!("{self:?}: {status:?}\n{}", read(process.0.stderr.take().unwrap()));
        }
        read(process.0.stdout.take().unwrap())
    }
}

fn read(mut from: impl Read) -> String {
    let mut text = String::new();
    from.read_to_string(&mut text).unwrap();
    text
}

fn debian_python(example: &str) -> Option<Example> {
    debian_python_with("python3-redis", "redis", &[example])
}

/// Debian's own Python, which is the one that sees Debian's packages.
fn debian_python_with(packages: &str, modules: &str, arguments: &[&str]) -> Option<Example> {
    let python = "/usr/bin/python3";
    let import = format!("import {modules}");
    installed(packages, Command::new(python).args(["-c", &import]))
        .then(|| Example::new(python, arguments).with("PYTHONDONTWRITEBYTECODE", "1"))
}

fn pypi_python(example: &str) -> Option<Example> {
    pypi_python_with(&[example])
}

fn pypi_python_with(arguments: &[&str]) -> Option<Example> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        fetched("PyPI", "requirements.txt", |folder| {
            let mut pip = Command::new("python3");
            pip.args(["-m", "pip", "install", "--quiet", "--no-cache-dir", "--retries", "1", "--target"]).arg(folder);
            pip.arg("--requirement").arg(path("requirements.txt"));
            pip
        })
    });
    let folder = folder.as_ref()?.to_str().unwrap();
    Some(Example::new("python3", arguments).with("PYTHONDONTWRITEBYTECODE", "1").with("PYTHONPATH", folder))
}

/// `NODE_PATH` is where Debian puts packages, for a Node.js that is not Debian's.
fn debian_node(example: &str) -> Option<Example> {
    let folder = "/usr/share/nodejs";
    installed("nodejs and node-redis", Command::new("node").args(["-e", "require('redis')"]).env("NODE_PATH", folder))
        .then(|| Example::new("node", &[example]).with("NODE_PATH", folder))
}

/// Debian's npm is large: scripts/test does not install it.
fn npm_node(example: &str) -> Option<Example> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    if !found(Command::new("npm").arg("--version")) {
        println!("left out: npm is not installed");
        return None;
    }
    let folder = FOLDER.get_or_init(|| {
        fetched("npm", "package.json", |folder| {
            fs::copy(path("package.json"), folder.join("package.json")).unwrap();
            let mut npm = Command::new("npm");
            npm.args(["install", "--silent", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1"]);
            npm.arg("--cache").arg(folder.join("cache")).current_dir(folder);
            npm
        })
    });
    let folder = folder.as_ref()?.join("node_modules");
    Some(Example::new("node", &[example]).with("NODE_PATH", folder.to_str().unwrap()))
}

/// The folder in target/ with what this file of tests/clients lists: fetched once.
fn fetched(registry: &str, list: &str, fetch: impl Fn(&Path) -> Command) -> Option<PathBuf> {
    let mut hasher = DefaultHasher::new();
    fs::read(path(list)).unwrap().hash(&mut hasher);
    let folder = target(&format!("clients-{:x}", hasher.finish()));
    if folder.exists() {
        return Some(folder);
    }
    // Moved into place: another run may be fetching it at this moment.
    let new = target(&format!("clients-{}-{list}", std::process::id()));
    fs::create_dir_all(&new).unwrap();
    let there = installed(&format!("what tests/clients/{list} has from {registry}"), &mut fetch(&new));
    if there {
        let _ = fs::rename(&new, &folder);
    }
    let _ = fs::remove_dir_all(&new);
    there.then_some(folder)
}

/// Whether it is, by a command that then succeeds; if not, the test is left out and says so.
fn installed(what: &str, check: &mut Command) -> bool {
    found(check) || left_out(&format!("{what} cannot be had"))
}

fn found(check: &mut Command) -> bool {
    check.output().is_ok_and(|output| output.status.success())
}

fn path(example: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests/clients", example].iter().collect()
}

/// A place for what is made or fetched.
fn target(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// An HTTP server, on a free port, gone when dropped.
struct Http {
    _process: Process,
    port: u16,
    /// Also of what goes wrong in it.
    log: PathBuf,
}

impl Http {
    fn start(example: &Example, redis: u16) -> Self {
        let port = free_port();
        let mut example = example.clone();
        for argument in example.arguments.iter_mut().filter(|argument| *argument == "PORT") {
            *argument = port.to_string();
        }
        let log = target(&format!("clients-http-{port}.log"));
        let file = fs::File::create(&log).unwrap();
        let mut command = example.command(redis);
        command.env("HTTP_PORT", port.to_string()).stdout(file.try_clone().unwrap()).stderr(file);
        let mut process = Process(command.spawn().unwrap());
        let started = eventually(Duration::from_secs(60), || {
            let ended = process.0.try_wait().unwrap();
            assert_eq!(ended, None, "{example:?}: {}", fs::read_to_string(&log).unwrap());
            TcpStream::connect(("127.0.0.1", port)).ok()
        });
        assert!(started.is_some(), "{example:?} does not serve");
        Self { _process: process, port, log }
    }

    /// The status, the headers and the body, for a request with these headers.
    fn get(&self, target: &str, headers: &str) -> (u16, Vec<String>, String) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        stream.write_all(format!("GET {target} HTTP/1.0\r\n{headers}\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        let end = stream.read_to_string(&mut answer);
        let Some((head, body)) = answer.split_once("\r\n\r\n") else {
            panic!("{end:?}, {answer:?}: {}", fs::read_to_string(&self.log).unwrap());
        };
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap();
        (status.parse().unwrap(), lines.map(ToString::to_string).collect(), body.to_string())
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.log);
    }
}
