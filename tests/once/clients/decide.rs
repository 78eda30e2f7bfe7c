//! Each library's example decides as the server does, and as it was told to where the server gives no answer.

use std::net::TcpListener;
use std::process::Command;
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use ::redis_cell_rs::{Cmd, Key, Policy, Verdict};
use redis::RedisResult;

use super::ANSWERS;
use crate::support::examples::{
    BOUND, Example, TIMEOUT, debian_node, ends_in_time, hiredis, npm_node, phpredis, predis, redigo, redis_rb,
};
use crate::support::losing::{losing, unanswered};
use crate::support::needs::found;
use crate::support::programs::redis_rs::Fail;
use crate::support::programs::{redis_cell_rs, redis_rs, signal};
use crate::support::traffic::side_by_side;
use crate::support::{Server, run};

#[test]
#[ignore = "slow: other languages"]
fn each_example_decides_and_decides_in_time_without_an_answer() {
    let others = [phpredis(), predis(), redis_rb(&["redis_rb.rb"]), hiredis(None), jedis()];
    side_by_side(others.into_iter().flatten().chain(redigo()), |example| {
        decides_with_a_server(&example);
        decides_on_an_error(&example);
        decides_without_an_answer(&example);
    });
}

/// node-redis and ioredis reconnect at times of their own choice. Their decisions without an answer are tested in
/// http.rs, with Express. Each program waits five seconds for its first connection.
#[test]
#[ignore = "slow: other languages"]
fn node_redis_and_ioredis_decide() {
    let node = [debian_node("node_redis.js"), npm_node("node_redis.js"), npm_node("ioredis.js")];
    side_by_side(node.into_iter().flatten(), |example| {
        decides_with_a_server(&example);
        decides_on_an_error(&example);
        let (printed, errors) = example.with("TIMEOUT", "0.1").output_and_errors(unanswered().0);
        assert!(printed.lines().all(|line| line.trim_end() == "200"), "{example:?}: {printed}");
        let tries = errors.lines().filter(|line| line.starts_with("redis: ")).count();
        assert!(tries > 6, "{example:?} waits longer than TIMEOUT for a connection: {errors}");
    });
}

/// `JEDIS` is a class path with Jedis and its dependencies; no registry was found that has them.
fn jedis() -> Option<Example> {
    let (Ok(jedis), true) = (std::env::var("JEDIS"), found(Command::new("java").arg("-version"))) else {
        println!("left out: there is no java, or no class path in JEDIS");
        return None;
    };
    Some(Example::new("java", &["-cp", &jedis, "Jedis.java"]))
}

/// The pool logs redis-rs's own words for an error. bursts.rs tests its decisions beside a server that is gone.
#[test]
#[ignore = "slow: other languages"]
fn redis_rs_decides_with_a_server_and_without_an_answer() {
    let client = |user, port| redis::Client::open(format!("redis://{user}127.0.0.1:{port}/")).unwrap();
    let answers = |client, fail, timeout| {
        let pool = redis_rs::Pool::new(client, timeout);
        let answer =
            |quantity| pool.ask(fail, |connection| redis_rs::throttle(connection, "user123", (2, 1, 60), quantity));
        [1, 1, 1, 1, 4].map(|quantity| line(answer(quantity)) + "\n").concat()
    };
    assert_eq!(answers(Server::start().client(), Fail::Open, TIMEOUT), ANSWERS);
    for (fail, without_an_answer) in [(Fail::Open, "200"), (Fail::Closed, "503 Retry-After: 1")] {
        let server = Server::start();
        let losing = client("", losing(server.port, "CL.THROTTLE", 1, 2));
        assert_two_were_lost(&answers(losing, fail, TIMEOUT), without_an_answer);
    }
    for (cause, user, logged) in [
        ("RPUSH user123 x", "", "WRONGTYPE"),
        ("ACL SETUSER default -cl.throttle", "", "no permissions"),
        ("ACL SETUSER default >secret", "", "Authentication required"),
        ("ACL SETUSER default >secret", ":wrong@", "Password authentication failed"),
    ] {
        let server = Server::start();
        run::<()>(&mut server.connect(), cause).unwrap();
        let client = client(user, server.port);
        let call = |mut connection| redis_rs::throttle(&mut connection, "user123", (2, 1, 60), 1);
        let error = client.get_connection().and_then(call).unwrap_err().to_string();
        assert!(error.contains(logged), "{cause}: {error}");
        assert_eq!(answers(client, Fail::Closed, TIMEOUT), "503 Retry-After: 1\n".repeat(5), "{cause}");
    }
    let stopped = Server::start();
    signal(stopped.pid(), "STOP");
    for port in [stopped.port, unanswered().0] {
        ends_in_time("redis-rs", || {
            assert_eq!(answers(client("", port), Fail::Open, Duration::from_millis(100)), "200 \n".repeat(5));
        });
    }
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
    for (apply, status) in [(4, 413), (3, 200), (usize::MAX, 413)] {
        let policy = Policy::from_tokens_per_minute(1).max_burst(2).apply_tokens(apply);
        let answer = pool.ask(Fail::Open, |connection| redis_cell_rs::throttle(connection, "user123", &policy));
        assert_eq!(answer.0, status, "{apply}: {answer:?}");
    }
}

/// A server with the most clients that it accepts may take its time to close a connection.
#[test]
#[ignore = "slow: other languages"]
fn phpredis_predis_and_hiredis_ask_a_full_server_for_a_second_however_slow_it_is() {
    side_by_side([phpredis(), predis(), hiredis(None)].into_iter().flatten(), |example| {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        spawn(move || {
            for connection in listener.incoming() {
                sleep(Duration::from_millis(100));
                drop(connection);
            }
        });
        let start = Instant::now();
        let (printed, errors) = example.with("FAIL", "open").output_and_errors(port);
        assert!(start.elapsed() < BOUND / 2, "{example:?}: {:?} for five calls", start.elapsed());
        let lines: Vec<_> = printed.lines().map(str::trim_end).collect();
        assert_eq!(lines, ["503 Retry-After: 1"; 5], "{example:?}");
        let refused = errors.contains("accepts no more clients") && !errors.contains("failing open");
        assert!(refused, "{example:?}: {errors}");
    });
}

/// The example recommends pconnect, whose connections outlive the request.
#[test]
#[ignore = "slow: other languages"]
fn phpredis_leaves_a_replica_even_with_pconnect() {
    let Some(_) = phpredis() else { return };
    let program = "eval('?>' . str_replace('->connect(', '->pconnect(', file_get_contents('phpredis.php')));";
    let server = Server::start();
    run::<()>(&mut server.connect(), "REPLICAOF 127.0.0.1 1").unwrap();
    let connections = || run::<i64>(&mut server.connect(), "CLIENT ID").unwrap();
    let before = connections();
    Example::new("php", &["-r", program]).output(server.port);
    assert!(connections() - before > 5, "five calls share a connection");
}

fn decides_with_a_server(example: &Example) {
    assert_eq!(example.output(Server::start().port), ANSWERS, "{example:?}");
}

/// Checks that an error in place of the reply is a call without a reply, and that the example's log says which: a key
/// of another type, a right or a password that is missing.
fn decides_on_an_error(example: &Example) {
    for (cause, fail, without_an_answer, logged) in [
        ("RPUSH user123 x", "closed", "503 Retry-After: 1", "WRONGTYPE|wrong kind"),
        ("ACL SETUSER default -cl.throttle -ping", "open", "200", "permission"),
        ("CONFIG SET requirepass secret", "open", "200", "Authentication required|NOAUTH|HELLO AUTH|WRONGPASS"),
    ] {
        let server = Server::start();
        run::<()>(&mut server.connect(), cause).unwrap();
        // redis-rb reads this variable; the wrong password counts where one is required.
        let example = example.with("FAIL", fail).with("REDIS_URL", "redis://default:wrong@127.0.0.1/");
        let (printed, errors) = example.output_and_errors(server.port);
        let lines: Vec<_> = printed.lines().map(str::trim_end).collect();
        assert_eq!(lines, [without_an_answer; 5], "{example:?}: {cause}");
        assert!(logged.split('|').any(|logged| errors.contains(logged)), "{example:?}: {cause}: {errors}");
    }
}

/// Checks the decisions on a network that loses an answer and a call, and with a server that is stopped or gone.
fn decides_without_an_answer(example: &Example) {
    for (fail, without_an_answer) in [("open", "200"), ("closed", "503 Retry-After: 1")] {
        let example = example.with("FAIL", fail);
        let mut server = Server::start();
        assert_two_were_lost(&example.output(losing(server.port, "CL.THROTTLE", 1, 2)), without_an_answer);
        if fail == "open" {
            signal(server.pid(), "STOP")
        } else {
            server.kill()
        }
        decides_in_time(&example, server.port, without_an_answer);
        decides_in_time(&example, unanswered().0, without_an_answer);
    }
}

/// Checks the decisions on five calls to a port that answers none of them.
fn decides_in_time(example: &Example, port: u16, without_an_answer: &str) {
    ends_in_time(example, || {
        let printed = example.with("TIMEOUT", "0.1").output(port);
        let lines: Vec<_> = printed.lines().map(str::trim_end).collect();
        assert_eq!(lines, [without_an_answer; 5], "{example:?}");
    });
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
        "413 X-RateLimit-Limit: 3, X-RateLimit-Remaining: 0,",
    ];
    assert_eq!(lines.len(), 5, "{printed}");
    for (line, expected) in lines.into_iter().zip(expected) {
        let same = if expected.ends_with(',') { line.starts_with(expected) } else { line == expected };
        assert!(same, "{printed}");
    }
}

/// Formats an answer as the examples print it.
fn line<T: std::fmt::Display>((status, headers): (u16, Vec<(&str, T)>)) -> String {
    let headers: Vec<_> = headers.into_iter().map(|(name, value)| format!("{name}: {value}")).collect();
    format!("{status} {}", headers.join(", "))
}
