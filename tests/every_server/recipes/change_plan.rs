//! docs/recipes/change_plan.lua: a plan that changes.

use redis::{Connection, RedisResult, Value};

use crate::support::clock::Clock;
use crate::support::random::Random;
use crate::support::recipes::{START, read};
use crate::support::{run, snapshot, throttle};

fn change(connection: &mut Connection, key: &str, numbers: &str) -> RedisResult<[i64; 5]> {
    let numbers: Vec<_> = numbers.split(' ').collect();
    redis::cmd("EVAL").arg(read("change_plan.lua")).arg("1").arg(key).arg(numbers).query(connection)
}

#[test]
fn a_plan_that_changes_counts_at_once_and_keeps_what_was_taken() {
    let (_clock, server) = Clock::start(START);
    let mut connection = server.connect();
    throttle(&mut connection, "alice 9 10 86400 8");
    // The eight tokens would count as 80 without the script.
    assert_eq!(throttle(&mut connection, "alice 99 100 86400 0")[2], 20);
    assert_eq!(change(&mut connection, "alice", "9 10 86400 99 100 86400").unwrap()[..3], [0, 100, 92]);
    assert_eq!(throttle(&mut connection, "alice 99 100 86400 92")[..3], [0, 100, 0]);
    // The plan shrinks again: more tokens are taken than it holds, and they stay taken when it grows back.
    assert_eq!(change(&mut connection, "alice", "99 100 86400 9 10 86400").unwrap()[..3], [1, 10, 0]);
    assert_eq!(change(&mut connection, "alice", "9 10 86400 99 100 86400").unwrap()[..3], [0, 100, 0]);
    // A full limiter stays without a key.
    assert_eq!(change(&mut connection, "bob", "9 10 86400 99 100 86400").unwrap(), [0, 100, 100, -1, 0]);
    assert!(!run::<bool>(&mut connection, "EXISTS bob").unwrap());
    // The first of several quotas changes, and the second stays as it is.
    run::<Value>(&mut connection, "CL.THROTTLE erin 9 10 86400 8 99 100 3600").unwrap();
    let second = |connection: &mut Connection| run::<String>(connection, "GETRANGE erin 19 37").unwrap();
    let before = second(&mut connection);
    assert_eq!(change(&mut connection, "erin", "9 10 86400 99 100 86400").unwrap()[..3], [0, 100, 92]);
    assert_eq!((before.len(), second(&mut connection)), (19, before));
    // Redis 7.2 writes a number with this many zeros as 2e+8.
    run::<[i64; 5]>(&mut connection, "CL.CHARGE frank 199999999 1000 1 200000000").unwrap();
    let reply = change(&mut connection, "frank", "199999999 1000 1 299999999 1000 1").unwrap();
    assert_eq!(reply[..3], [0, 300_000_000, 100_000_000]);
    // The first three charges leave a debt of 1, of 2 and of 6 tokens.
    for (taken, remaining) in [(11, 89), (12, 88), (16, 84), (60, 40), (60_000, 0)] {
        run::<[i64; 5]>(&mut connection, &format!("CL.CHARGE k{taken} 9 10 86400 {taken}")).unwrap();
        let reply = change(&mut connection, &format!("k{taken}"), "9 10 86400 99 100 86400").unwrap();
        assert_eq!(reply[..3], [i64::from(remaining == 0), 100, remaining], "{taken}");
        assert_eq!(reply[4], taken * 864, "{taken}");
    }
}

/// The plan changes back and forth at random moments.
#[test]
#[ignore = "slow: hundreds of changes"]
fn a_plan_that_changes_often_brings_back_no_tokens() {
    let (clock, server) = Clock::start(START);
    let mut connection = server.connect();
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
            let numbers = format!("{plan} {new}");
            change(&mut connection, "key", &numbers)
                .unwrap_or_else(|error| panic!("round {round}: {numbers}, {before} missing: {error}"));
            assert_eq!(missing(&mut connection, new), before, "round {round}: {numbers}");
            plan = new;
            now += random.below(1_000_000_000) as i64;
            clock.set(now);
        }
    }
}

#[test]
fn a_plan_that_cannot_change_stays_as_it_was() {
    let (_clock, server) = Clock::start(START);
    let mut connection = server.connect();
    run::<()>(&mut connection, "ACL SETUSER app on nopass ~* +eval +cl.look +get +set +del").unwrap();
    let mut app = server.connect();
    run::<()>(&mut app, "AUTH app x").unwrap();
    throttle(&mut connection, "carol 99 100 86400 80");
    throttle(&mut connection, "dave 99 100 86400 100");
    let before = snapshot(&mut connection);
    let fails = |connection: &mut Connection, key: &str, numbers: &str| {
        change(connection, key, numbers).unwrap_err();
        assert_eq!(snapshot(&mut server.connect()), before, "{key}: {numbers}");
    };
    for wrong in [
        "99 100 86400 99 0 86400",
        "9 0 86400 99 100 86400",
        "99 100 86400 99 100",
        "99 100 86400 -2 100 86400",
        // In the next two, the tokens would be back only after the year 2262.
        "99 100 86400 0 1 7000000000",
        "99 100 86400 0 1 99000000",
    ] {
        fails(&mut connection, "carol", wrong);
        fails(&mut connection, "dave", wrong);
    }
    // `app` may not call CL.CHARGE; a server at maxmemory refuses it as well.
    fails(&mut app, "carol", "99 100 86400 9 10 86400");
    run::<()>(&mut connection, "CONFIG SET maxmemory 1").unwrap();
    fails(&mut connection, "carol", "99 100 86400 9 10 86400");
}
