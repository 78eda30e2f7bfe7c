//! Time to the nanosecond, on a server whose wall clock the test moves.

use crate::support::clock::{Clock, SECOND, START};
use crate::support::{run, throttle};

#[test]
fn a_clock_outside_its_range_counts_as_standing_at_the_end_of_it() {
    // The last nanosecond of a second.
    let start = START - START % SECOND + SECOND - 1;
    let (clock, _server, mut connection) = Clock::start(start);
    // The clock stands in the year 2280.
    clock.shift(8_000_000_000);
    let error = run::<[i64; 5]>(&mut connection, "CL.THROTTLE key 4 1 60").unwrap_err();
    assert!(error.to_string().contains("the year 2262"), "{error}");
    // The clock stands in the year 1960.
    clock.shift(-2_100_000_000);
    assert_eq!(throttle(&mut connection, "key 4 1 60"), [0, 5, 4, -1, 60]);
    assert_eq!(run::<String>(&mut connection, "GET key").unwrap(), "0000000060999999999");
    assert_eq!(throttle(&mut connection, "key 4 1 60"), [0, 5, 3, -1, 120]);
}

#[test]
fn a_limiter_in_use_refuses_everything_for_an_hour_after_its_clock_steps_back_by_an_hour() {
    let (clock, _server, mut connection) = Clock::start(START);
    assert_eq!(throttle(&mut connection, "key 9 10 1"), [0, 10, 9, -1, 1]);
    clock.shift(-3_600);
    assert_eq!(throttle(&mut connection, "key 9 10 1"), [1, 10, 0, 3_600, 3_601]);
    clock.shift(0);
    assert_eq!(throttle(&mut connection, "key 9 10 1"), [0, 10, 8, -1, 1]);
}
