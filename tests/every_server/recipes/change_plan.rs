//! docs/recipes/change_plan.lua: a plan that changes.

use redis::{Connection, Value};

use crate::support::clock::Clock;
use crate::support::random::Random;
use crate::support::recipes::{START, eval, refuses, user};
use crate::support::{run, throttle};

fn change(connection: &mut Connection, key: &str, numbers: &str) -> [i64; 5] {
    eval(connection, "change_plan.lua", &format!("1 {key} {numbers}")).unwrap()
}

#[test]
fn a_plan_that_changes_counts_at_once_and_keeps_what_was_taken() {
    let (_clock, server, mut connection) = Clock::start(START);
    let mut app = user(&server, "docs/recipes.md", "## A plan that changes");
    // A full limiter stays without a key.
    assert_eq!(change(&mut app, "bob", "9 10 86400 99 100 86400"), [0, 100, 100, -1, 0]);
    assert!(!run::<bool>(&mut connection, "EXISTS bob").unwrap());
    // The first of several quotas changes, and the second stays as it is.
    run::<Value>(&mut connection, "CL.THROTTLE erin 9 10 86400 8 99 100 3600").unwrap();
    let second = |connection: &mut Connection| run::<String>(connection, "GETRANGE erin 19 37").unwrap();
    let before = second(&mut connection);
    assert_eq!(change(&mut app, "erin", "9 10 86400 99 100 86400")[..3], [0, 100, 92]);
    assert_eq!((before.len(), second(&mut connection)), (19, before));
    // Redis 7.2 writes a number with this many zeros as 2e+8.
    run::<[i64; 5]>(&mut connection, "CL.CHARGE frank 199999999 1000 1 200000000").unwrap();
    let reply = change(&mut app, "frank", "199999999 1000 1 299999999 1000 1");
    assert_eq!(reply[..3], [0, 300_000_000, 100_000_000]);
}

/// Returns the tokens of a plan that are missing. A look with a limit far above the plan's counts debts as well.
fn missing(connection: &mut Connection, plan: &str) -> i64 {
    let (_, rate) = plan.split_once(' ').unwrap();
    let [_, limit, remaining, ..] = run::<[i64; 5]>(connection, &format!("CL.LOOK key 99999 {rate} 0")).unwrap();
    limit - remaining
}

#[test]
fn a_plan_that_changes_often_brings_back_no_tokens() {
    let (clock, _server, mut connection) = Clock::start(START);
    let plans = ["9 10 86400", "99 100 86400", "6 7 3600", "999999 1000000 1"];
    let (mut random, mut plan) = (Random::new(2026), plans[0]);
    for turn in 0..200 {
        clock.set(START + turn * 777_777_777);
        run::<[i64; 5]>(&mut connection, &format!("CL.CHARGE key {plan} {}", 1 + random.below(60))).unwrap();
        let (new, before) = (random.pick(&plans), missing(&mut connection, plan));
        change(&mut connection, "key", &format!("{plan} {new}"));
        assert_eq!(missing(&mut connection, new), before, "turn {turn}: {plan} {new}");
        plan = new;
    }
}

#[test]
fn a_plan_that_cannot_change_stays_as_it_was() {
    let (_clock, _server, mut connection) = Clock::start(START);
    throttle(&mut connection, "carol 99 100 86400 80");
    run::<[i64; 5]>(&mut connection, "CL.CHARGE dave 0 1000000000 1 10000000000000000").unwrap();
    for (words, error) in [
        // Lua reads most of these as numbers.
        ("carol 9.5 100 86400 9 10 86400", "old max_burst must be a whole number from -1 on"),
        ("carol 99 1e2 86400 9 10 86400", "old count must be a whole number from 1 on"),
        ("carol 99 100 nan 9 10 86400", "old period must be a whole number from 1 on"),
        ("carol 99 100 86400 -2 10 86400", "new max_burst must be a whole number from -1 on"),
        ("carol 99 100 86400 9 0 86400", "new count must be a whole number from 1 on"),
        ("carol 99 100 86400 9 10 1000000000000000", "new period must be a whole number from 1 on"),
        ("carol 99 100 86400 0 1 99000000", "max_burst, count and period: the tokens would be back only"),
        ("dave 0 1000000000 1 9 10 86400", "more tokens are missing"),
    ] {
        refuses(&mut connection, "change_plan.lua", &format!("1 {words}"), &format!("ERR {error}"));
    }
    run::<()>(&mut connection, "CONFIG SET maxmemory 1").unwrap();
    refuses(&mut connection, "change_plan.lua", "1 carol 99 100 86400 9 10 86400", "OOM ");
}
