//! Negative quantities, which give tokens back: code written for redis-cell relies on them.

use redis::Value;

use crate::support::clock::{Clock, START};
use crate::support::{run, throttle};

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
