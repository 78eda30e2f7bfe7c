//! docs/recipes/minimum.lua: each tenant has its minimum, and the rest of the pool is lent.

use redis::Connection;

use crate::support::clock::{Clock, MILLISECOND};
use crate::support::recipes::{Row, START, eval, refuses, user};
use crate::support::run;

/// The tenants, and the minimum of each: 5 at once and 20 a second, 10 at once and 50 a second, none.
const TENANTS: [(&str, &str); 3] = [("a", "4 20 1"), ("b", "9 50 1"), ("none", "-1 1 1")];
/// All tenants together get 50 at once and 100 a second, of which 35 at once are lent.
const WHOLE: i64 = 50;
const LENT: &str = "34 100 1";

fn call(connection: &mut Connection, (name, minimum): (&str, &str), quantity: u64) -> Row {
    eval(connection, "minimum.lua", &format!("2 {name} pool {minimum} {LENT} {quantity}")).unwrap()
}

#[test]
fn a_tenant_alone_gets_the_pool_and_among_others_its_minimum_of_the_pools_burst_and_rate() {
    let (clock, server, mut connection) = Clock::start(START);
    let mut app = user(&server, "docs/recipes.md", "## A guaranteed minimum");
    let [a, b, none] = TENANTS;
    let (mut turn, mut passed, mut lowest, mut most) = (0, 0, 0, 0);
    // The tenants that call for half a second, in their order. A turn is when a token of the pool comes back, and a tenant
    // calls until it is refused: the first one takes all that is lent.
    for tenants in [vec![a], vec![a, none, b], vec![none], vec![none, a, b], vec![b]] {
        let before = passed;
        for _ in 0..50 {
            clock.set(START + turn * 10 * MILLISECOND);
            for tenant @ (name, minimum) in &tenants {
                let now = (0..).take_while(|_| call(&mut app, *tenant, 1)[0] == 0).count() as i64;
                // A limiter with the numbers of the minimum alone.
                let [guaranteed, ..]: Row = run(&mut connection, &format!("CL.TAKE {name}:twin {minimum} 99")).unwrap();
                assert!(now >= guaranteed, "{name} got {now} of {guaranteed} in turn {turn}");
                passed += now;
            }
            // The calls since any moment, less those that have come back since then.
            most = most.max(passed - turn - lowest);
            turn += 1;
            lowest = lowest.min(passed - turn);
        }
        // The tenants together use the whole pool. At first, the tokens that are lent at once are there, too.
        assert_eq!(passed - before, if before == 0 { 35 + 49 } else { 50 }, "{tenants:?}");
    }
    assert_eq!(most, WHOLE);
}

#[test]
fn a_limited_call_has_the_shorter_wait_of_the_minimum_and_the_pool() {
    let (clock, _server, mut connection) = Clock::start(START);
    let [a, _, none] = TENANTS;
    run::<Row>(&mut connection, &format!("CL.CHARGE pool {LENT} 1035")).unwrap();
    // A call without a quantity takes one token.
    let one: Row = eval(&mut connection, "minimum.lua", &format!("2 a pool 4 20 1 {LENT}")).unwrap();
    assert_eq!(one, [0, 5, 4, -1, 1]);
    assert_eq!(call(&mut connection, a, 4), [0, 5, 0, -1, 1]);
    // The pool has 1,005 tokens too few, and the minimum four.
    assert_eq!(call(&mut connection, a, 4), [1, 5, 0, 1, 1]);
    clock.set(START + 200 * MILLISECOND);
    assert_eq!(call(&mut connection, a, 4)[0], 0);
    // A limiter that would never allow the call has no wait: the other's counts.
    assert_eq!(eval::<Row>(&mut connection, "minimum.lua", "2 a pool 4 20 1 3 100 1 5").unwrap(), [1, 5, 0, 1, 1]);
    assert_eq!(call(&mut connection, a, 6), [1, 35, 0, 10, 11]);
    assert_eq!(call(&mut connection, none, 1), [1, 35, 0, 10, 11]);
    refuses(&mut connection, "minimum.lua", &format!("2 pool pool 4 20 1 {LENT}"), "ERR the tenant and the pool need");
    // A client knows by the error's code that a failover has made its server a replica.
    run::<()>(&mut connection, "REPLICAOF 127.0.0.1 1").unwrap();
    let error = eval::<Row>(&mut connection, "minimum.lua", &format!("2 a pool 4 20 1 {LENT}")).unwrap_err();
    assert_eq!(error.code(), Some("READONLY"));
}
