//! Another module may run code of its own when a key expires or a notification is sent. Whatever that code does to a
//! call's keys, the server does not crash, and replicas are sent what the call has written.

use redis::{Connection, RedisResult, Value};

use crate::support::clock::{Clock, MILLISECOND, START};
use crate::support::needs::{assert_key_sizes, is_redis_6_2};
use crate::support::replication::{catch_up, replicate};
use crate::support::{Server, compiled, module, run, run_all, snapshot, transaction};

/// Starts a server with redis-cell and another module, callbacks.c, and with keyspace notifications turned on.
fn start() -> (Clock, Server, Connection) {
    let modules = ["--loadmodule", compiled("callbacks"), "--loadmodule", module()];
    Clock::start_bare(START, &[&modules[..], &["--notify-keyspace-events", "Ad"]].concat())
}

/// Checks that the replica and the primary hold the same state for this key. Other keys may differ, because another
/// module's writes are not replicated.
fn assert_same(replica: &Server, primary: &Server, key: &str) {
    catch_up(replica, primary);
    let held = |server: &Server| snapshot(&mut server.connect()).remove(key);
    assert_eq!(held(replica), held(primary), "the replica and the primary hold different states");
}

/// Makes these calls in one transaction, after a command that pauses writes.
fn while_paused(connection: &mut Connection, calls: &[&str]) -> RedisResult<Vec<Value>> {
    let replies = transaction(connection, &[&["CLIENT PAUSE 60000 WRITE"], calls].concat());
    let _ = run::<()>(connection, "CLIENT UNPAUSE");
    replies
}

/// The call opens k1, which has expired. When the server deletes k1, another module changes k2 or recreates k1. That
/// module also creates index keys when a key is created, so the number of keys does not show whether the call has
/// written its key.
#[test]
fn a_callback_may_change_the_keys_of_the_call_that_it_interrupts() {
    let (clock, server, mut connection) = start();
    let (_clock, replica, _) = Clock::start_bare(START, &[]);
    replicate(&replica, &server);
    let long = "x".repeat(100);
    for harm in [
        "DEL k2",
        "SET k2 text",
        // This text is so long that the server stores the string outside its object.
        &format!("APPEND k2 {long}"),
        "PEXPIRE k2 1",
        "SET k1 text",
        "SET k1 1790000000000000000",
        "HSET k1 field text",
        "CL.CHARGE k1 5 1 60 1",
    ] {
        for line in ["CL.CHARGE k1 5 1 60 3", "CL.MTHROTTLE k2 5 1 60 3 k1 5 1 60 3"] {
            clock.set(START);
            run_all(&mut connection, &["FLUSHALL", "CB.CLEAR", "CL.THROTTLE k2 5 1 60 2", "SET k1 1 PX 1"]);
            clock.set(START + 2 * MILLISECOND);
            let rule = format!("CB.DO expired {harm}");
            let index = ["CB.DO new SET idx:1 k1", "CB.DO new SET idx:2 k1"];
            run_all(&mut connection, &["CB.DO expired INCR expiries", &rule, index[0], index[1]]);
            let reply = run::<Value>(&mut connection, line);
            assert_eq!(run::<i64>(&mut connection, "GET expiries").unwrap(), 1, "{line}");
            if let Err(error) = reply {
                // Redis 6.2 looks an expired key up again after deleting it, so the call may find the other module's
                // value.
                assert!(is_redis_6_2(), "{line} after {harm}: {error}\n{}", server.log());
                continue;
            }
            for key in ["k1", "k2"].iter().filter(|key| line.contains(**key)) {
                assert_same(&replica, &server, key);
            }
        }
    }
}

/// The callback runs after the call has closed the key, so the callback's change stays.
#[test]
fn a_callback_may_change_a_key_that_the_call_has_just_written() {
    let (_clock, server, mut connection) = start();
    assert_key_sizes(&mut connection);
    for (harm, look, expected) in [
        ("DEL %", "EXISTS k1", 0),
        ("SET % text", "STRLEN k1", 4),
        (&format!("APPEND % {}", "x".repeat(100)), "STRLEN k1", 119),
        ("PERSIST %", "TTL k1", -1),
    ] {
        for line in ["CL.CHARGE k1 5 1 60 9", "CL.MTHROTTLE k1 5 1 60 1 k2 5 1 60 1"] {
            let rule = format!("CB.DO cl.throttle {harm}");
            run_all(&mut connection, &["FLUSHALL", "CB.CLEAR", "CL.THROTTLE k1 5 1 60 2", &rule]);
            run::<Value>(&mut connection, line).unwrap_or_else(|error| panic!("{line}: {error}\n{}", server.log()));
            assert_eq!(run::<i64>(&mut connection, look).unwrap(), expected, "{harm} after {line}");
        }
    }
}

/// The callback appends to the string of each new key. A call with more quotas than the key has TATs recreates the key.
#[test]
fn a_callback_may_change_the_length_of_a_key_that_the_call_creates() {
    let (_clock, server, mut connection) = start();
    run_all(&mut connection, &["CB.DO new APPEND % x"]);
    for (call, length) in [
        ("CL.THROTTLE k1 5 1 60", 19),
        ("CL.THROTTLE k1 5 1 60 1 9 1 60", 38),
        ("CL.MTHROTTLE k2 5 1 60 1 k3 5 1 60 1", 38),
    ] {
        run::<Value>(&mut connection, call).unwrap_or_else(|error| panic!("{call}: {error}\n{}", server.log()));
        assert_eq!(run::<i64>(&mut connection, "STRLEN k1").unwrap(), length, "{call}");
    }
    assert_eq!(run::<i64>(&mut connection, "STRLEN k3").unwrap(), 19);
}

/// While clients are paused, the server keeps an expired key, but reports it as missing. Redis 7.0 to 8.10 and Valkey
/// 8.0 crash when SET is called on such a key.
#[test]
fn a_key_that_has_expired_while_clients_are_paused_is_written_completely() {
    let (clock, server, mut connection) = start();
    let (_clock, replica, _) = Clock::start_bare(START, &[]);
    replicate(&replica, &server);
    let index = "CB.DO new SET idx:1 k1";
    // redis-cell deletes an expired key before it creates a new one. Another module's handler may write when the key is
    // deleted, and its write is replicated.
    let seen = "CB.DO del !INCR seen";
    for rules in [[index, seen], [index, "CB.DO del SET % text"], [seen, "CB.DO del HSET % field text"]] {
        for (calls, remaining) in [
            (["CL.CHARGE k1 5 1 60 3"; 2], 0),
            (["CL.THROTTLE k1 5 1 60 3 9 1 60"; 2], 0),
            (["CL.MTHROTTLE k2 5 1 60 1 k1 5 1 60 1", "CL.MTHROTTLE k1 5 1 60 2 k2 5 1 60 2"], 3),
            (["CL.THROTTLE k1 5 1 60 0", "CL.CHARGE k1 5 1 60 -1"], 6),
            (["CL.THROTTLE k1 5 1 60 7", "CL.CHARGE k1 5 1 60 1"], 5),
        ] {
            clock.set(START);
            run_all(&mut connection, &["FLUSHALL", "CB.CLEAR", "CL.PTHROTTLE k1 0 1 1", "CL.PTHROTTLE k2 0 1 1"]);
            clock.set(START + 3 * MILLISECOND);
            run_all(&mut connection, &rules);
            let replies = while_paused(&mut connection, &calls);
            replies.unwrap_or_else(|error| panic!("{calls:?}, {rules:?}: {error}\n{}", server.log()));
            let held: [i64; 5] = run(&mut connection, "CL.LOOK k1 5 1 60 0").unwrap();
            assert_eq!(held[2], remaining, "tokens remaining after {calls:?}, {rules:?}");
            assert_same(&replica, &server, "k1");
            assert_same(&replica, &server, "seen");
        }
    }
}

/// The handler for the deletion recreates the key as a limiter. If redis-cell still treated the key as absent, Valkey 9
/// would announce a new key, and the handler's value would be lost.
#[test]
fn a_key_that_a_handler_recreates_while_clients_are_paused_is_overwritten() {
    let (clock, _server, mut connection) = start();
    run_all(&mut connection, &["CL.PTHROTTLE k1 0 1 1"]);
    clock.set(START + 3 * MILLISECOND);
    run_all(&mut connection, &["CB.DO new INCR new", "CB.DO del SET % 1790000000000000000"]);
    while_paused(&mut connection, &["CL.THROTTLE k1 5 1 60"]).unwrap();
    assert!(!run::<bool>(&mut connection, "EXISTS new").unwrap(), "the call created a new key");
}
