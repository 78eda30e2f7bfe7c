//! Negative quantities, which give tokens back: code written for redis-cell relies on them.

use redis::Value;

use crate::support::aof::{AOF, commands};
use crate::support::clock::{Clock, START};
use crate::support::expected::expiry;
use crate::support::replication::{Monitor, SETTINGS, replicate};
use crate::support::{Server, info, run, throttle};

#[test]
fn the_replies_and_states_are_those_of_redis_cell() {
    let (_clock, server) = Clock::start(START);
    let mut connection = server.connect();
    throttle(&mut connection, "key 15 30 60 5");
    assert_eq!(throttle(&mut connection, "key 15 30 60 -3"), [0, 16, 14, -1, 4]);
    let tat: i64 = run(&mut connection, "GET key").unwrap();
    assert_eq!(tat, START + 4_000_000_000);
    // interledger-rs makes this call for each packet that is not fulfilled.
    throttle(&mut connection, "packets 999 999 60 700");
    assert_eq!(throttle(&mut connection, "packets 999 999 60 -500")[..3], [0, 1000, 800]);
}

#[test]
fn a_limiter_that_is_full_again_has_no_key() {
    let (_clock, server) = Clock::start(START);
    let mut connection = server.connect();
    for quantity in [-5, -6, i64::MIN] {
        throttle(&mut connection, "key 15 30 60 5");
        let call = format!("key 15 30 60 {quantity}");
        assert_eq!(throttle(&mut connection, &call), [0, 16, 16, -1, 0]);
        assert!(!run::<bool>(&mut connection, "EXISTS key").unwrap());
    }
    // A key without an expiry, whose TAT has passed: brandur's redis-cell leaves such keys behind.
    for quantity in [-1, 0] {
        run::<()>(&mut connection, &format!("SET key {}", START - 1)).unwrap();
        let call = format!("key 15 30 60 {quantity}");
        assert_eq!(throttle(&mut connection, &call), [0, 16, 16, -1, 0]);
    }
    assert!(run::<bool>(&mut connection, "EXISTS key").unwrap(), "a call of quantity 0 deleted the key");
}

#[test]
fn files_and_replicas_get_the_effect() {
    let server = Server::start_with(&[&SETTINGS[..], &AOF].concat());
    let replica = Server::start_bare(&[]);
    replicate(&replica, &server);
    let monitor = Monitor::start(&replica);
    let mut connection = server.connect();
    throttle(&mut connection, "key 4 1 3600 3");
    let before: i64 = run(&mut connection, "GET key").unwrap();
    throttle(&mut connection, "key 4 1 3600 -1");
    let after: i64 = run(&mut connection, "GET key").unwrap();
    throttle(&mut connection, "key 4 1 3600 -5");
    assert_eq!(info(&mut connection, "rdb_changes_since_last_save"), "3");
    // A key that is gone is a full limiter: giving back to it writes nothing.
    throttle(&mut connection, "key 4 1 3600 -5");
    assert_eq!(info(&mut connection, "rdb_changes_since_last_save"), "3");
    run::<()>(&mut connection, "SET last 1").unwrap();

    let set = |tat: i64| format!("SET key {tat} PXAT {}", expiry(tat.into()));
    let effects = [set(before), set(after), "DEL key".into()];
    let file = commands(&server.folder).iter().map(|words| words.join(" ")).collect();
    for mut words in [file, monitor.commands_until("last")] {
        // Redis 6.2 puts MULTI and EXEC around each command.
        words.retain(|words: &String| words.contains(" key"));
        assert_eq!(words, effects);
    }
}

#[test]
fn a_limited_call_of_several_limiters_gives_nothing_back() {
    let (_clock, server) = Clock::start(START);
    let mut connection = server.connect();
    throttle(&mut connection, "a 4 1 60 3");
    throttle(&mut connection, "b 0 1 60");
    let five = |integers: [i64; 5]| Value::Array(integers.map(Value::Int).to_vec());
    let reply: Value = run(&mut connection, "CL.MTHROTTLE a 4 1 60 -2 b 0 1 60 1").unwrap();
    let a = five([0, 5, 2, -1, 180]);
    assert_eq!(reply, Value::Array(vec![Value::Int(1), a, five([1, 1, 0, 60, 60])]));
    let reply: Value = run(&mut connection, "CL.MTHROTTLE a 4 1 60 -2 b 0 1 60 -1").unwrap();
    let a = five([0, 5, 4, -1, 60]);
    assert_eq!(reply, Value::Array(vec![Value::Int(0), a, five([0, 1, 1, -1, 0])]));
    assert!(!run::<bool>(&mut connection, "EXISTS b").unwrap());
    let reply: [i64; 5] = run(&mut connection, "CL.PTHROTTLE a 4 1 60000 -1").unwrap();
    assert_eq!(reply, [0, 5, 5, -1, 0]);
}

#[test]
fn a_debt_that_gets_tokens_back_is_not_the_limited_group() {
    let (_clock, server) = Clock::start(START);
    let mut connection = server.connect();
    run::<[i64; 5]>(&mut connection, "CL.CHARGE debt 4 1 60 9").unwrap();
    throttle(&mut connection, "full 0 1 60");
    let five = |integers: [i64; 5]| Value::Array(integers.map(Value::Int).to_vec());
    let reply: Value = run(&mut connection, "CL.MTHROTTLE debt 4 1 60 -2 full 0 1 60 1").unwrap();
    // A look at this limiter would be limited: it is in debt.
    let debt = five([0, 5, 0, -1, 540]);
    assert_eq!(reply, Value::Array(vec![Value::Int(1), debt, five([1, 1, 0, 60, 60])]));
}
