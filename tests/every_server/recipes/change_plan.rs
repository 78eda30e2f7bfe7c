//! docs/recipes/change_plan.lua: a plan that changes.

use redis::{Connection, RedisResult, Value};

use crate::support::clock::Clock;
use crate::support::random::Random;
use crate::support::recipes::{START, eval, refuses, user};
use crate::support::{run, snapshot, throttle};

fn change(connection: &mut Connection, key: &str, numbers: &str) -> RedisResult<[i64; 5]> {
    eval(connection, "change_plan.lua", &format!("1 {key} {numbers}"))
}

#[test]
fn a_plan_that_changes_counts_at_once_and_keeps_what_was_taken() {
    let (_clock, server, mut connection) = Clock::start(START);
    let mut app = user(&server, "docs/recipes.md", "## A plan that changes");
    // A full limiter stays without a key.
    assert_eq!(change(&mut app, "bob", "9 10 86400 99 100 86400").unwrap(), [0, 100, 100, -1, 0]);
    assert!(!run::<bool>(&mut connection, "EXISTS bob").unwrap());
    // The first of several quotas changes, and the second stays as it is.
    run::<Value>(&mut connection, "CL.THROTTLE erin 9 10 86400 8 99 100 3600").unwrap();
    let second = |connection: &mut Connection| run::<String>(connection, "GETRANGE erin 19 37").unwrap();
    let before = second(&mut connection);
    assert_eq!(change(&mut app, "erin", "9 10 86400 99 100 86400").unwrap()[..3], [0, 100, 92]);
    assert_eq!((before.len(), second(&mut connection)), (19, before));
    // Redis 7.2 writes a number with this many zeros as 2e+8.
    run::<[i64; 5]>(&mut connection, "CL.CHARGE frank 199999999 1000 1 200000000").unwrap();
    let reply = change(&mut app, "frank", "199999999 1000 1 299999999 1000 1").unwrap();
    assert_eq!(reply[..3], [0, 300_000_000, 100_000_000]);
}

/// The plan changes back and forth, to larger and smaller ones, at random moments.
#[test]
#[ignore = "slow: hundreds of changes"]
fn a_plan_that_changes_often_brings_back_no_tokens() {
    let (clock, _server, mut connection) = Clock::start(START);
    let plans = ["9 10 86400", "99 100 86400", "6 7 3600", "999999 1000000 1"];
    let mut random = Random::new(2026);
    for round in 0..40 {
        run::<()>(&mut connection, "FLUSHALL").unwrap();
        let mut now = START;
        clock.set(now);
        let mut plan = random.pick(&plans);
        run::<[i64; 5]>(&mut connection, &format!("CL.CHARGE key {plan} {}", 1 + random.below(60))).unwrap();
        for _ in 0..20 {
            let new = random.pick(&plans);
            // Look with a limit far above the plan's, so that debts are counted as well.
            let missing = |connection: &mut Connection, plan: &str| {
                let rate = plan.split_once(' ').unwrap().1;
                let look: [i64; 5] = run(connection, &format!("CL.LOOK key 99999 {rate} 0")).unwrap();
                look[1] - look[2]
            };
            let before = missing(&mut connection, plan);
            change(&mut connection, "key", &format!("{plan} {new}")).unwrap();
            assert_eq!(missing(&mut connection, new), before, "round {round}: {plan} {new}");
            plan = new;
            now += random.below(1_000_000_000) as i64;
            clock.set(now);
        }
    }
}

#[test]
fn a_plan_that_cannot_change_stays_as_it_was() {
    let (_clock, server, mut connection) = Clock::start(START);
    throttle(&mut connection, "carol 99 100 86400 80");
    let before = snapshot(&mut connection);
    let mut fails = |numbers: &str| {
        change(&mut connection, "carol", numbers).unwrap_err();
        assert_eq!(snapshot(&mut connection), before, "{numbers}");
    };
    fails("99 100 86400 99 0 86400");
    fails("99 100 86400 99 100");
    // The tokens would be back only after the year 2262.
    fails("99 100 86400 0 1 99000000");
    run::<()>(&mut server.connect(), "CONFIG SET maxmemory 1").unwrap();
    fails("99 100 86400 9 10 86400");
    run::<()>(&mut server.connect(), "CONFIG SET maxmemory 0").unwrap();
    // Most of these are numbers for Lua.
    for wrong in ["9.5", "0x10", "␣5", "5␣", "1e3", "nan", "inf", "007", "-0", "-2", "1000000000000000", "", "x"] {
        let names = ["old max_burst", "old count", "old period", "new max_burst", "new count", "new period"];
        for (place, name) in names.into_iter().enumerate() {
            let mut words = ["99", "100", "86400", "9", "10", "86400"];
            words[place] = wrong;
            let error = format!("ERR {name} must be a whole number from ");
            refuses(&mut connection, "change_plan.lua", &format!("1 carol {}", words.join(" ")), &error);
        }
    }
    run::<[i64; 5]>(&mut connection, "CL.CHARGE dave 0 1000000000 1 10000000000000000").unwrap();
    refuses(&mut connection, "change_plan.lua", "1 dave 0 1000000000 1 9 10 86400", "ERR more tokens are missing");
}
