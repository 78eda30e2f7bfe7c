//! CL.CHARGE always takes, if necessary into debt: it is for costs that are known only after the call.

use crate::support::clock::{Clock, START};
use crate::support::{run, throttle};

fn charge(connection: &mut redis::Connection, arguments: &str) -> [i64; 5] {
    run(connection, &format!("CL.CHARGE {arguments}")).unwrap()
}

#[test]
fn a_charge_beyond_what_remains_is_a_debt_that_time_pays() {
    let (clock, server) = Clock::start(START);
    let mut connection = server.connect();
    assert_eq!(charge(&mut connection, "key 4 1 1 4"), [0, 5, 1, -1, 4]);
    assert_eq!(charge(&mut connection, "key 4 1 1 4"), [1, 5, 0, 3, 8], "3 more than there were");
    assert_eq!(run::<i64>(&mut connection, "GET key").unwrap(), START + 8_000_000_000);
    assert_eq!(throttle(&mut connection, "key 4 1 1"), [1, 5, 0, 4, 8], "the wait is that for the debt and one token");
    assert_eq!(throttle(&mut connection, "key 4 1 1 0"), [1, 5, 0, 3, 8]);
    assert_eq!(charge(&mut connection, "key 4 1 1 0"), [1, 5, 0, 3, 8], "a look");
    clock.set(START + 3_000_000_000);
    assert_eq!(throttle(&mut connection, "key 4 1 1 0"), [0, 5, 0, -1, 5], "paid");
    clock.set(START + 4_000_000_000);
    assert_eq!(throttle(&mut connection, "key 4 1 1"), [0, 5, 0, -1, 5]);
    // A single charge above the limit.
    assert_eq!(charge(&mut connection, "other 4 1 1 100"), [1, 5, 0, 95, 100]);
}

#[test]
fn a_charge_that_was_too_high_can_be_given_back() {
    let (_clock, server) = Clock::start(START);
    let mut connection = server.connect();
    charge(&mut connection, "key 4 1 1 9");
    assert_eq!(
        charge(&mut connection, "key 4 1 1 -2"),
        [0, 5, 0, -1, 7],
        "a charge that gives back is never limited, even in debt"
    );
    assert_eq!(charge(&mut connection, "key 4 1 1 -5"), [0, 5, 3, -1, 2]);
    assert_eq!(charge(&mut connection, "key 4 1 1 -5"), [0, 5, 5, -1, 0]);
    assert!(!run::<bool>(&mut connection, "EXISTS key").unwrap());
}

#[test]
fn cl_pcharge_counts_in_milliseconds() {
    let (_clock, server) = Clock::start(START);
    let mut connection = server.connect();
    assert_eq!(run::<[i64; 5]>(&mut connection, "CL.PCHARGE key 4 1 250 9").unwrap(), [1, 5, 0, 1000, 2250]);
}
