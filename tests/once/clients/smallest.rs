//! The smallest right calls: PHP, Ruby, C, Go and Rust. Each makes five calls and prints the answers.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::ANSWERS;
use crate::support::endpoint::{Fate, losing, relay, unanswered};
use crate::support::examples::{Example, examples};
use crate::support::programs::{path, redis_rs, signal};
use crate::support::traffic::side_by_side;
use crate::support::{Server, free_port, new_folder, run};

const REFUSED: &str = "503 Retry-After: 1\n";

/// The programs; none is the one in Rust, which is compiled into the tests.
fn programs() -> impl Iterator<Item = Option<Example>> {
    examples("smallest").into_iter().map(Some).chain([None])
}

fn prints(program: &Option<Example>, port: u16, timeout: f64) -> String {
    match program {
        Some(example) => example.with("TIMEOUT", &timeout.to_string()).output(port),
        None => [1, 1, 1, 1, 4].map(in_rust(port, timeout, (2, 1, 60))).concat(),
    }
}

fn in_rust(port: u16, timeout: f64, quota: (i64, u64, u64)) -> impl FnMut(u32) -> String {
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}/")).unwrap();
    let timeout = Duration::from_secs_f64(timeout);
    let mut limiter = redis_rs::Limiter { client, timeout, connection: None };
    move |quantity| {
        let (status, headers) = limiter.throttle("user123", quota, quantity);
        let headers: Vec<_> = headers.into_iter().map(|(name, value)| format!("{name}: {value}")).collect();
        format!("{status} {}\n", headers.join(", "))
    }
}

/// A closed plan is a limit of 0: no wait would help.
#[test]
#[ignore = "slow: other languages"]
fn each_smallest_call_decides_as_redis_does_and_a_closed_plan_is_403() {
    side_by_side(programs(), |program| {
        assert_eq!(prints(&program, Server::start().port, 60.0), ANSWERS, "{program:?}");
    });
    let folder = new_folder();
    for file in ["php_redis.php", "redis_rb.rb", "hiredis.c", "redigo.go"] {
        let text = fs::read_to_string(path(&format!("clients/{file}"))).unwrap();
        assert!(text.contains("2, 1, 60"), "{file}");
        fs::write(folder.path().join(file), text.replace("2, 1, 60", "-1, 1, 60")).unwrap();
    }
    let expected = "403 X-RateLimit-Limit: 0, X-RateLimit-Remaining: 0, X-RateLimit-Reset: 0\n".repeat(5);
    for mut example in examples("smallest") {
        example.folder = folder.path().to_path_buf();
        assert_eq!(example.output(Server::start().port), expected, "{example:?}");
    }
    assert_eq!([1; 5].map(in_rust(Server::start().port, 60.0, (-1, 1, 60))).concat(), expected);
}

/// A server that cannot decide, one that accepts connections and is silent, a port that does not answer, and one that
/// is closed.
#[test]
#[ignore = "slow: other languages"]
fn each_smallest_call_is_refused_without_an_answer() {
    side_by_side(programs(), |program| {
        for failure in [
            "RPUSH user123 x",
            "ACL SETUSER default -cl.throttle",
            "CONFIG SET requirepass secret",
            "CONFIG SET maxmemory 1",
            "REPLICAOF 127.0.0.1 1",
        ] {
            let server = Server::start();
            run::<()>(&mut server.connect(), failure).unwrap();
            assert_eq!(prints(&program, server.port, 60.0), REFUSED.repeat(5), "{program:?}: {failure}");
        }
        let stopped = Server::start();
        signal(stopped.pid(), "STOP");
        let (nobody, _full) = unanswered();
        for port in [stopped.port, nobody, free_port()] {
            assert_eq!(prints(&program, port, 0.1), REFUSED.repeat(5), "{program:?}");
        }
    });
}

/// The first connection leads to a replica for ever, as an old one does after a failover behind one address. On the
/// server itself, the answer to the second call is lost, and the connection of the third is closed before the server has
/// the call. The last call finds one of three tokens: the second has taken its token once.
#[test]
#[ignore = "slow: other languages"]
fn each_smallest_call_is_made_once_and_leaves_its_connection_after_an_error() {
    side_by_side(programs(), |program| {
        let [old, new] = [Server::start(), Server::start()];
        run::<()>(&mut old.connect(), "REPLICAOF 127.0.0.1 1").unwrap();
        let (first, ports) = (AtomicBool::new(true), [old.port, losing(new.port, "CL.THROTTLE", 1, 2)]);
        let server = move || if first.swap(false, Ordering::Relaxed) { ports[0] } else { ports[1] };
        let address = relay(server, || |_: bool, _: &[u8]| Fate::PassedOn);
        let left = |status, left| format!("{status} X-RateLimit-Limit: 3, X-RateLimit-Remaining: {left}, ");
        let expected = [REFUSED.trim(), &left(200, 2), REFUSED.trim(), REFUSED.trim(), &left(413, 1)];
        let printed = prints(&program, address, 2.0);
        let is_expected = printed.lines().zip(expected).all(|(line, expected)| line.starts_with(expected));
        assert!(is_expected && printed.lines().count() == 5, "{program:?}: {printed}");
    });
}
