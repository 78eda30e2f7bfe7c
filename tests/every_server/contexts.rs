//! Calls in transactions, scripts, pipelines and both protocols: they all do the same.

use redis::Value;

use crate::support::needs::needs;
use crate::support::{Server, command, info, run};

/// Lua's numbers are inexact beyond 53 bits, but the module's decision is exact.
#[test]
fn lua_rounds_integers_beyond_53_bits() {
    let server = Server::start();
    let mut connection = server.connect();
    let call = "CL.THROTTLE key 9007199254740992 1000000000 1 9007199254740994";
    assert_eq!(run::<[i64; 5]>(&mut connection, call).unwrap()[..2], [1, 9_007_199_254_740_993]);
    let script = redis::Script::new(
        "return redis.call('CL.THROTTLE', KEYS[1], '9007199254740992', '1000000000', 1, '9007199254740993')",
    );
    let reply: [i64; 5] = script.key("key").invoke(&mut connection).unwrap();
    assert_eq!(reply[..2], [0, 9_007_199_254_740_992]);
}

#[test]
fn functions_call_the_module_like_lua() {
    needs!("functions, Redis 7");
    let server = Server::start();
    let mut connection = server.connect();
    let library = "#!lua name=limits\nredis.register_function('take', function(keys) return redis.call('CL.THROTTLE', keys[1], 4, 1, 60) end)";
    redis::cmd("FUNCTION").arg("LOAD").arg(library).exec(&mut connection).unwrap();
    assert_eq!(run::<[i64; 5]>(&mut connection, "FCALL take 1 key").unwrap(), [0, 5, 4, -1, 60]);
}

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
