//! The examples, attacked over many connections: of 200 calls at once, exactly the limit passes, even on a busy
//! machine, and again after the server was gone. A call that finds no free connection is refused.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{available_parallelism, scope};
use std::time::{Duration, Instant};

use ::redis_cell_rs::Policy;
use redis::Client;

use crate::support::endpoint::Endpoint;
use crate::support::examples::{
    BOUND, Example, Http, at_once, debian_node, express, hiredis, npm_node, of_test, php_server, redigo, redis_rb,
};
use crate::support::programs::redis_rs::{Fail, Pool};
use crate::support::programs::{redis_cell_rs, redis_rs, signal};
use crate::support::traffic::side_by_side;
use crate::support::{Process, Server, eventually, run};

const CALLS: usize = 200;
/// The limit of the examples: three at once, and one a minute.
const LIMIT: usize = 3;
/// The seconds that an example waits for its server's reply. A server that a busy machine stops for this long counts as
/// gone.
const TIMEOUT: f64 = 5.0;

/// A function that makes this many calls at once, which fail "open" or "closed", and returns their statuses.
type Calls = Box<dyn Fn(usize, &str) -> Vec<u16>>;

/// A function that starts an example before a server at this port, with this many seconds to wait for a reply.
type Start = Box<dyn Fn(u16, f64) -> Calls + Send + Sync>;

/// Returns the name and the start of each example with lasting connections.
fn examples() -> Vec<(String, Start)> {
    let servers = express().chain(redigo());
    let servers = servers.map(|example| (format!("{example:?}"), over_http(example)));
    let programs = lines_in_ruby().into_iter().chain(lines_in_node());
    let programs = programs.map(|example| (format!("{example:?}"), by_lines(example)));
    let rust: Start = Box::new(in_rust);
    servers.chain(programs).chain([("redis-rs".to_string(), rust)]).collect()
}

/// PHP and C have one process for each request. The processes' pool is the server's list of clients, which is too short
/// for all.
#[test]
#[ignore = "slow: attacks"]
fn each_example_lets_through_its_limit() {
    for (what, start) in examples() {
        lets_through_its_limit(&what, &[], start);
    }
    lets_through_its_limit("redis-cell-rs", &[], in_rust_with_types);
    for example in php_server() {
        lets_through_its_limit(&format!("{example:?}"), &["--maxclients", "10"], over_http(example));
    }
    if let Some(example) = hiredis(Some("bursts/lines.c")) {
        lets_through_its_limit("hiredis", &["--maxclients", "50"], by_lines(example));
    }
}

#[test]
#[ignore = "slow: attacks"]
fn a_call_without_a_free_connection_is_refused() {
    side_by_side(examples(), |(what, start)| {
        let places = if what.contains("\"node\"") { 100 } else { 20 };
        refuses_a_call_without_a_connection(&what, places, start);
    });
}

#[test]
#[ignore = "slow: attacks"]
fn each_example_finds_its_server_again() {
    for (what, start) in examples() {
        finds_its_server_again(&what, start);
    }
    let Some(start) = hiredis(Some("bursts/lines.c")).map(by_lines) else { return };
    // Make the calls on the lasting connection, one by one.
    finds_its_server_again("hiredis", |port, timeout| {
        let call = start(port, timeout);
        Box::new(move |calls, fail| (0..calls).flat_map(|_| call(1, fail)).collect())
    });
}

#[test]
#[ignore = "slow: attacks"]
fn each_example_decides_on_500_callers_beside_a_silent_server() {
    for (what, start) in examples() {
        decides_on_500_callers_beside_a_silent_server(&what, start);
    }
}

/// node-redis and ioredis connect by themselves, and calls fail until they have.
#[test]
#[ignore = "slow: attacks"]
fn a_connection_that_breaks_off_fails_at_most_four_of_100_calls_a_second() {
    side_by_side(lines_in_node().chain(lines_in_ruby()), |example| {
        let server = Server::start();
        let endpoint = Endpoint::to(server.port);
        let calls = by_lines(example.clone())(endpoint.port, 1.0);
        assert!(eventually(BOUND, || (calls(1, "open") == [429]).then_some(())).is_some(), "{example:?}");
        let (mut failed, mut cuts) = (0, 0);
        for call in 0..300 {
            cuts += usize::from(call % 10 == 0 && endpoint.cut());
            std::thread::sleep(Duration::from_millis(10));
            failed += calls(1, "open").iter().filter(|status| **status == 200).count();
        }
        assert!(cuts == 30 && failed <= 4 * cuts, "{example:?}: {failed} calls failed open in {cuts} breaks");
    });
}

/// A right or a password that is missing is a mistake, and the server is there.
#[test]
#[ignore = "slow: attacks"]
fn no_error_of_the_server_is_taken_for_its_silence() {
    side_by_side(examples(), |(what, start)| takes_no_error_for_silence(&what, start));
}

/// The late answer to a call that was given up must not become the answer to the next call on its connection.
#[test]
#[ignore = "slow: attacks"]
fn no_late_answer_becomes_that_of_another_call() {
    let php = php_server().map(|example| (format!("{example:?}"), over_http(example)));
    side_by_side(examples().into_iter().chain(php), |(what, start)| takes_no_late_answer(&what, start));
}

fn over_http(example: Example) -> Start {
    Box::new(move |port, timeout| {
        let http = Http::start(&example.with("TIMEOUT", &timeout.to_string()), port);
        Box::new(move |calls, fail| {
            let line = if fail == "open" { "GET /" } else { "POST /login" };
            let request = format!("{line} HTTP/1.0\r\nContent-Length: 0\r\n\r\n");
            http.at_once(calls, &request)
        })
    })
}

fn pool(port: u16, timeout: f64) -> Pool {
    let client = Client::open(format!("redis://127.0.0.1:{port}/")).unwrap();
    Pool::new(client, Duration::from_secs_f64(timeout))
}

fn in_rust(port: u16, timeout: f64) -> Calls {
    let pool = pool(port, timeout);
    Box::new(move |calls, fail| {
        let call = |()| pool.ask(which(fail), |connection| redis_rs::throttle(connection, fail, (2, 1, 60), 1)).0;
        at_once(calls, || (), call)
    })
}

fn in_rust_with_types(port: u16, timeout: f64) -> Calls {
    let pool = pool(port, timeout);
    let policy = Policy::from_tokens_per_minute(1).max_burst(2);
    Box::new(move |calls, fail| {
        let call = |()| pool.ask(which(fail), |connection| redis_cell_rs::throttle(connection, fail, &policy)).0;
        at_once(calls, || (), call)
    })
}

fn which(fail: &str) -> Fail {
    if fail == "open" { Fail::Open } else { Fail::Closed }
}

fn lines_in_ruby() -> Option<Example> {
    redis_rb(&[&of_test("bursts/lines.rb")])
}

/// Returns the example of node-redis, with the library of Debian and of npm, and that of ioredis.
fn lines_in_node() -> impl Iterator<Item = Example> {
    let program = of_test("bursts/lines.js");
    let [debian, npm] = [debian_node(&program), npm_node(&program)];
    let with = |example: Option<Example>, client| example.map(|example| example.with("CLIENT", client));
    [with(debian, "node_redis.js"), with(npm.clone(), "node_redis.js"), with(npm, "ioredis.js")].into_iter().flatten()
}

/// Starts the example, which reads lines such as "200 open" and answers each with a line of statuses.
fn by_lines(example: Example) -> Start {
    Box::new(move |port, timeout| {
        let mut command = example.with("TIMEOUT", &timeout.to_string()).command(port);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = Process(command.spawn().unwrap());
        let pipes = (process.0.stdin.take().unwrap(), BufReader::new(process.0.stdout.take().unwrap()));
        let example = RefCell::new((process, pipes));
        Box::new(move |calls, fail| {
            let (_, (input, output)) = &mut *example.borrow_mut();
            writeln!(input, "{calls} {fail}").unwrap();
            let mut line = String::new();
            output.read_line(&mut line).unwrap();
            line.split_whitespace().map(|status| status.parse().unwrap()).collect()
        })
    })
}

/// Checks that exactly the limit passes, beside busy processors and beside idle ones. The example and a server with
/// these settings are started anew each time.
fn lets_through_its_limit(what: &str, settings: &[&str], start: impl Fn(u16, f64) -> Calls) {
    for busy in [true, false] {
        let mut server = Server::start_with(settings);
        let calls = start(server.port, TIMEOUT);
        let let_through = || {
            let statuses = calls(CALLS, "open");
            assert!(statuses.iter().all(|status| [200, 429, 503].contains(status)), "{what}: {statuses:?}");
            statuses.iter().filter(|status| **status == 200).count()
        };
        if busy {
            assert_eq!(beside_busy_threads(let_through), LIMIT, "{what}, beside busy threads");
            continue;
        }
        assert_eq!(let_through(), LIMIT, "{what}");
        server.kill();
        for (fail, status) in [("open", 200), ("closed", 503)] {
            let start = Instant::now();
            assert_eq!(calls(1, fail), [status], "{what}, {fail}, gone");
            assert!(start.elapsed() < BOUND, "{what}, {fail}: {:?}", start.elapsed());
        }
        server.restart();
        let limits = || (calls(1, "closed") != [503]).then_some(());
        assert!(eventually(BOUND, limits).is_some(), "{what} does not limit again after the restart");
        assert_eq!(let_through(), LIMIT, "{what}, after the restart");
    }
}

/// Checks that a call without a free connection is refused. The calls that have one wait longer for the server than the
/// others wait for a connection.
fn refuses_a_call_without_a_connection(what: &str, places: usize, start: impl Fn(u16, f64) -> Calls) {
    let server = Server::start();
    let calls = start(server.port, 3.0);
    assert_eq!(calls(1, "open"), [200], "{what}");
    signal(server.pid(), "STOP");
    let mut statuses = calls(places + 20, "open");
    statuses.sort_unstable();
    assert_eq!(statuses, [vec![200; places], vec![503; 20]].concat(), "{what}");
}

/// Checks that each of 500 callers is answered as their calls fail, open or closed, while the server is stopped: those
/// beyond the pool do not wait as if the server were busy. The limit holds as soon as the server goes on.
fn decides_on_500_callers_beside_a_silent_server(what: &str, start: impl Fn(u16, f64) -> Calls) {
    let server = Server::start();
    let calls = start(server.port, 0.3);
    assert_eq!(calls(1, "open"), [200], "{what}");
    signal(server.pid(), "STOP");
    let others = |fail: &str, status: u16| -> Vec<u16> {
        calls(500, fail).into_iter().filter(|found| *found != status).collect()
    };
    // On a busy machine, the first calls to time out may do so after the others have waited for a connection.
    assert!(eventually(BOUND, || others("open", 200).is_empty().then_some(())).is_some(), "{what}");
    assert_eq!([others("closed", 503), others("open", 200)].concat(), [0; 0], "{what}");
    signal(server.pid(), "CONT");
    assert!(eventually(BOUND, || (calls(1, "closed") != [503]).then_some(())).is_some(), "{what}");
    run::<()>(&mut server.connect(), "FLUSHALL").unwrap();
    let passed = calls(CALLS, "open").iter().filter(|status| **status == 200).count();
    assert_eq!(passed, LIMIT, "{what}, after the silence");
}

/// Checks that the example's calls are limited again after its connections have fallen silent, and after they have come
/// to lead to a replica: a failover behind one address moves only new connections. No call but those before the first
/// decision passes the limit.
fn finds_its_server_again(what: &str, start: impl Fn(u16, f64) -> Calls) {
    let [first, second] = [Server::start(), Server::start()];
    let endpoint = Endpoint::to(first.port);
    let calls = start(endpoint.port, 2.0);
    let limits_again = |server: &Server, after: &str| {
        let limits = || (calls(1, "closed") != [503]).then_some(());
        assert!(eventually(BOUND, limits).is_some(), "{what} does not limit again after {after}");
        run::<()>(&mut server.connect(), "FLUSHALL").unwrap();
        let passed = calls(CALLS, "open").iter().filter(|status| **status == 200).count();
        assert_eq!(passed, LIMIT, "{what}, after {after}");
    };
    limits_again(&first, "its start");
    endpoint.silence();
    limits_again(&first, "a silence");
    endpoint.lead_to(second.port);
    run::<()>(&mut first.connect(), &format!("REPLICAOF 127.0.0.1 {}", second.port)).unwrap();
    limits_again(&second, "a failover");
}

/// Checks that the limit holds again when the reason of an error is gone, after more errors than there are connections,
/// and after a second without another reply. A server that was taken for silent would be asked only after a time.
fn takes_no_error_for_silence(what: &str, start: impl Fn(u16, f64) -> Calls) {
    let server = Server::start();
    let mut settings = server.connect();
    // A client in Node.js that leaves a replica has no connection for a moment: calls fail then, and count as silence.
    let silence = if what.contains("\"node\"") { BOUND / 2 } else { BOUND * 3 };
    let calls = start(server.port, silence.as_secs_f64());
    let passed = || calls(CALLS, "open").iter().filter(|status| **status == 200).count();
    for [mistake, mended] in [
        ["ACL SETUSER default -cl.throttle", "ACL SETUSER default +cl.throttle"],
        ["REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"],
        ["ACL SETUSER default >secret", "ACL SETUSER default nopass"],
    ] {
        run::<()>(&mut settings, mistake).unwrap();
        if mistake.contains("secret") {
            // Only new connections need the password. Without one, the examples in Node.js have no reply.
            if what.contains("\"node\"") {
                continue;
            }
            run::<()>(&mut settings, "CLIENT KILL TYPE normal").unwrap();
            calls(1, "closed");
        }
        // On a busy machine, calls are refused that find no free connection for a second.
        let mut errors = 0;
        let mut err = || {
            errors += passed();
            (errors > 100).then_some(())
        };
        assert!(eventually(BOUND, &mut err).is_some(), "{what}: {mistake}");
        std::thread::sleep(Duration::from_millis(1_100));
        assert_eq!(calls(1, "closed"), [503], "{what}: {mistake}");
        run::<()>(&mut settings, mended).unwrap();
        // All but the first have closed connections.
        let limits = || mistake.contains("cl.throttle") || calls(1, "closed") != [503];
        assert!(eventually(BOUND, || limits().then_some(())).is_some(), "{what}: {mistake}");
        run::<()>(&mut settings, "FLUSHALL").unwrap();
        assert_eq!(passed(), LIMIT, "{what}: {mended}");
    }
}

/// Checks that a used up limiter stays limited, even if answers that allow calls on another limiter come late.
fn takes_no_late_answer(what: &str, start: impl Fn(u16, f64) -> Calls) {
    let server = Server::start();
    let calls = start(server.port, 0.3);
    let used_up = || calls(CALLS, "closed").iter().all(|status| [429, 503].contains(status));
    assert!(eventually(BOUND, || used_up().then_some(())).is_some(), "{what}");
    signal(server.pid(), "STOP");
    assert_eq!(calls(LIMIT, "open"), [200; LIMIT], "{what}: these calls fail open");
    signal(server.pid(), "CONT");
    assert!(used_up(), "{what}");
}

/// Does the work beside a busy thread for each processor.
fn beside_busy_threads<T>(work: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    scope(|scope| {
        for _ in 0..available_parallelism().unwrap().get() {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    std::hint::spin_loop()
                }
            });
        }
        // Catch a failure, so that it ends the threads as well.
        let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        done.store(true, Ordering::Relaxed);
        worked.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
