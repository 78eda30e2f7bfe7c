//! Time to the nanosecond, on a server whose wall clock the test moves.

use crate::support::clock::{Clock, SECOND, START};
use crate::support::{Server, now, run, throttle};

#[test]
fn a_clock_at_the_end_of_its_range_is_an_error_and_no_crash() {
    let (clock, server) = Clock::start(START);
    let mut connection = server.connect();
    clock.set(i64::MAX);
    let error = run::<[i64; 5]>(&mut connection, "CL.THROTTLE key 4 1 60").unwrap_err();
    assert!(error.to_string().contains("the year 2262"), "{error}");
    clock.set(START);
    assert_eq!(throttle(&mut connection, "key 4 1 60"), [0, 5, 4, -1, 60]);
}

#[test]
fn a_clock_outside_its_range_counts_as_standing_at_the_end_of_it() {
    // The last nanosecond of a second.
    let start = START - START % SECOND + SECOND - 1;
    let (clock, server) = Clock::start(start);
    let mut connection = server.connect();
    // The clock stands in the year 2280.
    clock.shift(8_000_000_000);
    let error = run::<[i64; 5]>(&mut connection, "CL.THROTTLE key 4 1 60").unwrap_err();
    assert!(error.to_string().contains("the year 2262"), "{error}");
    // The clock stands in the year 1960.
    clock.shift(-2_100_000_000);
    assert_eq!(throttle(&mut connection, "key 4 1 60"), [0, 5, 4, -1, 60]);
    assert_eq!(run::<String>(&mut connection, "GET key").unwrap(), "0000000060999999999");
}

#[test]
fn the_state_has_zeros_in_front_if_a_clock_is_not_set() {
    const YEAR_1990: i64 = 631_152_000_000_000_000;
    let (_clock, server) = Clock::start(YEAR_1990);
    let mut connection = server.connect();
    throttle(&mut connection, "key 4 1 60");
    assert_eq!(run::<String>(&mut connection, "GET key").unwrap(), "0631152060000000000");
    assert_eq!(throttle(&mut connection, "key 4 1 60"), [0, 5, 3, -1, 120]);
}

#[test]
fn a_state_with_zeros_in_front_is_rewritten_whole() {
    let server = Server::start();
    let mut connection = server.connect();
    for old in ["0000000000000000000", "0000000000000000001", "0999999999999999999"] {
        run::<()>(&mut connection, &format!("SET key {old}")).unwrap();
        assert_eq!(throttle(&mut connection, "key 4 1 60"), [0, 5, 4, -1, 60], "{old}");
        let tat: String = run(&mut connection, "GET key").unwrap();
        assert_eq!(tat.len(), 19);
        // The bound leaves ten seconds to a slow machine.
        assert!((0..10 * SECOND).contains(&(now() + 60 * SECOND - tat.parse::<i64>().unwrap())));
    }
}
