//! Replies on both protocols, and the caches of clients.

use redis::Value;

use crate::support::{Server, command, info, run};

/// The server tracks the keys that a client may have cached; a key leaves its table when the client is told to drop it.
#[test]
fn a_client_side_cache_is_told_of_an_allowed_call_and_only_that() {
    let server = Server::start();
    let mut cache = server.connect_resp3();
    let mut other = server.connect();
    run::<()>(&mut cache, "CLIENT TRACKING ON").unwrap();
    let mut told_of = |call: &str| -> bool {
        run::<Value>(&mut cache, "GET key").unwrap();
        let _ = run::<Value>(&mut other, call);
        info(&mut other, "tracking_total_keys") == "0"
    };
    assert!(told_of("CL.THROTTLE key 0 1 60"), "the cache was not told of a new limiter");
    assert!(!told_of("CL.THROTTLE key 0 1 60"), "the cache was told of a limited call");
    assert!(!told_of("CL.THROTTLE key 4 1 60 0"), "the cache was told of a look");
    assert!(!told_of("CL.THROTTLE key 4 1 0"), "the cache was told of an error");
    assert!(told_of("CL.THROTTLE key 4 1 60"), "the cache was not told of an allowed call");
    assert!(
        told_of("CL.MTHROTTLE key 4 1 60 1 another 4 1 60 1"),
        "the cache was not told of a call of several limiters"
    );
    assert!(told_of("CL.THROTTLE key 4 1 60 -1"), "the cache was not told of tokens given back");
    assert!(told_of("CL.THROTTLE key 4 1 60 -9"), "the cache was not told of all tokens given back");
}

#[test]
fn both_protocols_get_an_array_of_integers() {
    let server = Server::start();
    for mut connection in [server.connect(), server.connect_resp3()] {
        let Value::Array(items) = command("CL.THROTTLE key 4 1 60 0").query(&mut connection).unwrap() else {
            panic!("not an array");
        };
        assert_eq!(items, [0, 5, 5, -1, 0].map(Value::Int));
    }
}
