//! The smallest right calls: PHP, Ruby, C, Go and Rust. Each makes five calls and prints the answers.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::ANSWERS;
use crate::support::endpoint::{Fate, relay};
use crate::support::examples::{Example, smallest};
use crate::support::losing::{losing, unanswered};
use crate::support::programs::{path, redis_rs, signal};
use crate::support::traffic::side_by_side;
use crate::support::{Server, free_port, new_folder, run};

const REFUSED: &str = "503 Retry-After: 1\n";

/// A program in its own process, or the one in Rust, which is compiled into the tests.
enum Program {
    Process(Example),
    Rust,
}

fn programs() -> Vec<Program> {
    smallest(&path("")).into_iter().map(Program::Process).chain([Program::Rust]).collect()
}

impl Program {
    fn name(&self) -> String {
        if let Self::Process(example) = self { format!("{example:?}") } else { "redis-rs".to_string() }
    }

    /// Returns what the program prints.
    fn prints(&self, port: u16, timeout: f64) -> String {
        match self {
            Self::Process(example) => example.with("TIMEOUT", &timeout.to_string()).output(port),
            Self::Rust => [1, 1, 1, 1, 4].map(in_rust(port, timeout, (2, 1, 60))).concat(),
        }
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

#[test]
#[ignore = "slow: other languages"]
fn each_smallest_call_decides_as_redis_does() {
    side_by_side(programs(), |program| {
        assert_eq!(program.prints(Server::start().port, 60.0), ANSWERS, "{}", program.name());
    });
}

/// A server that cannot decide, one that accepts connections and is silent, a port at which nobody answers, and one that
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
            assert_eq!(program.prints(server.port, 60.0), REFUSED.repeat(5), "{}: {failure}", program.name());
        }
        let stopped = Server::start();
        signal(stopped.pid(), "STOP");
        let (nobody, _full) = unanswered();
        for port in [stopped.port, nobody, free_port()] {
            assert_eq!(program.prints(port, 0.1), REFUSED.repeat(5), "{}", program.name());
        }
    });
}

/// The answer to the second call is lost, and the connection of the third is closed before the server has the call. The
/// fourth gets the last of three tokens: the second has taken its token once.
#[test]
#[ignore = "slow: other languages"]
fn no_smallest_call_is_repeated() {
    side_by_side(programs(), |program| {
        let server = Server::start();
        let printed = program.prints(losing(server.port, "CL.THROTTLE", 1, 2), 2.0);
        let lines: Vec<_> = printed.lines().collect();
        assert!(lines[0].starts_with("200 ") && lines[0].contains("Remaining: 2,"), "{}: {printed}", program.name());
        assert_eq!(lines[1..3], [REFUSED.trim(); 2], "{}", program.name());
        assert!(lines[3].starts_with("200 ") && lines[3].contains("Remaining: 0,"), "{}: {printed}", program.name());
    });
}

/// After a failover behind one address, an old connection leads to a replica for ever.
#[test]
#[ignore = "slow: other languages"]
fn each_smallest_call_leaves_a_replica_after_one_error() {
    side_by_side(programs(), |program| {
        let [old, new] = [Server::start(), Server::start()];
        run::<()>(&mut old.connect(), "REPLICAOF 127.0.0.1 1").unwrap();
        let (first, ports) = (AtomicBool::new(true), [old.port, new.port]);
        let address = relay(
            move || if first.swap(false, Ordering::Relaxed) { ports[0] } else { ports[1] },
            |_| |_: bool, _: &[u8]| Fate::PassedOn,
        );
        let expected =
            REFUSED.to_string() + &ANSWERS.lines().take(3).map(|line| format!("{line}\n")).collect::<String>();
        assert!(program.prints(address, 60.0).starts_with(&expected), "{}", program.name());
    });
}

/// A closed plan is a limit of 0: no wait would help.
#[test]
#[ignore = "slow: other languages"]
fn each_smallest_call_of_a_closed_plan_is_403_without_a_wait() {
    let folder = new_folder();
    for file in ["php_redis.php", "redis_rb.rb", "hiredis.c", "redigo.go"] {
        let text = fs::read_to_string(path(file)).unwrap();
        assert!(text.contains("2, 1, 60"), "{file}");
        fs::write(folder.path().join(file), text.replace("2, 1, 60", "-1, 1, 60")).unwrap();
    }
    let expected = "403 X-RateLimit-Limit: 0, X-RateLimit-Remaining: 0, X-RateLimit-Reset: 0\n".repeat(5);
    for example in smallest(folder.path()) {
        assert_eq!(example.output(Server::start().port), expected, "{example:?}");
    }
    assert_eq!([1; 5].map(in_rust(Server::start().port, 60.0, (-1, 1, 60))).concat(), expected);
}
