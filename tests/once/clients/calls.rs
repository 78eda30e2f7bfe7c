//! A call that no server sees: its quantity is none, or the process is late or panics.

use crate::support::Server;
use crate::support::examples::{
    Example, TIMEOUT, debian_node, hiredis, npm_node, of_test, phpredis, predis, redigo_with, redis_rb,
};
use crate::support::programs::redis_rs::{self, Fail};

/// A request may state its own size. One that is no quantity must neither give tokens back, nor get an error from the
/// server and be let through because the call fails open.
#[test]
#[ignore = "slow: other languages"]
fn a_quantity_from_outside_gives_nothing_back_and_does_not_fail_open() {
    let node = of_test("clients/quantity.js");
    for example in [debian_node(&node), npm_node(&node)].into_iter().flatten() {
        assert_eq!(example.output(0), "refused\n".repeat(5), "{example:?}");
    }
    if let Some(example) = redis_rb(&[&of_test("clients/quantity.rb")]) {
        assert_eq!(example.output(0), "refused\n".repeat(4));
    }
    for (example, file) in [(phpredis(), "phpredis.php"), (predis(), "predis.php")] {
        let server = Server::start();
        let program = Example::new("php", &[&of_test("clients/quantity.php"), file]);
        let refused = |_| program.output(server.port).ends_with("\nrefused\nrefused\nrefused\n");
        assert!(example.is_none_or(refused), "{file}");
    }
    if let Some(example) = redigo_with("redigo-calls", &["clients/redigo.go"]) {
        assert_eq!(example.output(0), "400 []\n");
    }
    if let Some(example) = hiredis(Some("clients/quantity.c")) {
        assert_eq!(example.output(0), "400");
    }
    let server = Server::start();
    let pool = redis_rs::Pool::new(server.client(), TIMEOUT);
    for quantity in [4, i64::MAX as u64, u64::MAX] {
        let call = |connection: &mut _| redis_rs::throttle(connection, "user123", (2, 1, 60), quantity);
        assert_eq!(pool.ask(Fail::Open, call).0, 413, "{quantity}");
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

/// The event loop is late by more than the call's time, at each of its turns.
#[test]
#[ignore = "slow: other languages"]
fn an_event_loop_that_is_late_does_not_lose_an_answer() {
    let program = of_test("clients/late_loop.js");
    let node = [(debian_node(&program), "node_redis.js"), (npm_node(&program), "node_redis.js")];
    let node = node.into_iter().chain([(npm_node(&program), "ioredis.js")]);
    let node = node.filter_map(|(example, client)| Some(example?.with("CLIENT", client)));
    for example in node {
        assert_eq!(example.with("TIMEOUT", "0.1").output(Server::start().port), "2\n", "{example:?}");
    }
}
