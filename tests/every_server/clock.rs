//! Time to the nanosecond, on a server whose wall clock the test moves.

use crate::support::clock::{Clock, START};
use crate::support::{run, throttle};

const MILLISECOND: i64 = 1_000_000;
const SECOND: i64 = 1_000_000_000;

#[test]
fn the_published_table_of_redis_cell_holds() {
    let (clock, server) = Clock::start(START);
    let mut connection = server.connect();
    // The time in tenths of a second, the quantity, and the reply.
    let table = [
        (0, 6, [1, 5, 5, -1, 0]),
        (0, 1, [0, 5, 4, -1, 1]),
        (0, 1, [0, 5, 3, -1, 2]),
        (0, 1, [0, 5, 2, -1, 3]),
        (0, 1, [0, 5, 1, -1, 4]),
        (0, 1, [0, 5, 0, -1, 5]),
        (0, 1, [1, 5, 0, 1, 5]),
        (30, 1, [0, 5, 2, -1, 3]),
        (31, 1, [0, 5, 1, -1, 4]),
        (40, 1, [0, 5, 1, -1, 4]),
        (80, 1, [0, 5, 4, -1, 1]),
        (95, 1, [0, 5, 4, -1, 1]),
        (95, 0, [0, 5, 4, -1, 1]),
        (95, 2, [0, 5, 2, -1, 3]),
        (95, 5, [1, 5, 2, 3, 3]),
    ];
    for (tenths, quantity, reply) in table {
        clock.set(START + tenths * SECOND / 10);
        assert_eq!(throttle(&mut connection, &format!("key 4 1 1 {quantity}")), reply, "{quantity} at {tenths}");
    }
}

#[test]
fn a_call_passes_from_its_nanosecond_on_and_not_before() {
    let (clock, server) = Clock::start(START);
    let mut connection = server.connect();
    let mut now = START;
    for (max_burst, count, period) in
        [(0, 1, 1), (15, 30, 60), (9, 7, 3), (4, 1, 86_400), (999, 1_000_000, 1), (99, 999_999_937, 1)]
    {
        let quota = format!("{max_burst} {count} {period}");
        let key = quota.replace(' ', "/");
        clock.set(now);
        let limit = max_burst + 1;
        assert_eq!(throttle(&mut connection, &format!("{key} {quota} {limit}"))[0], 0);
        for quantity in [1, limit] {
            // The limiter is empty, so after `wait` exactly `quantity` tokens are there.
            let wait = quantity * period * SECOND / count;
            let tolerance = limit * period * SECOND / count;
            let wait = if quantity == limit { tolerance } else { wait };
            let call = format!("{key} {quota} {quantity}");
            clock.set(now + wait - 1);
            let early = throttle(&mut connection, &call);
            assert_eq!((early[0], early[3]), (1, 1), "1 ns before {call}");
            clock.set(now + wait);
            assert_eq!(throttle(&mut connection, &call)[0], 0, "{call}");
            // The limiter is empty again, or holds a part of a token if a token is not a whole number of nanoseconds.
            // So reset it, and take all tokens anew.
            now += 3 * tolerance.max(SECOND);
            clock.set(now);
            run::<()>(&mut connection, &format!("DEL {key}")).unwrap();
            assert_eq!(throttle(&mut connection, &format!("{key} {quota} {limit}"))[0], 0);
        }
    }
}

#[test]
fn waits_are_rounded_up_to_whole_seconds_exactly() {
    let (clock, server) = Clock::start(START);
    let mut connection = server.connect();
    assert_eq!(throttle(&mut connection, "key 0 1 10"), [0, 1, 0, -1, 10]);
    for (elapsed, seconds) in
        [(0, 10), (1, 10), (SECOND - 1, 10), (SECOND, 9), (8 * SECOND - 1, 3), (8 * SECOND, 2), (10 * SECOND - 1, 1)]
    {
        clock.set(START + elapsed);
        assert_eq!(throttle(&mut connection, "key 0 1 10"), [1, 1, 0, seconds, seconds], "after {elapsed} ns");
    }
    clock.set(START + 10 * SECOND);
    assert_eq!(throttle(&mut connection, "key 0 1 10"), [0, 1, 0, -1, 10]);
}

#[test]
fn limiters_refill_later_by_the_step_when_the_clock_steps_back_and_nothing_else_changes() {
    let (clock, server) = Clock::start(START);
    let mut connection = server.connect();
    assert_eq!(throttle(&mut connection, "key 4 1 60 2"), [0, 5, 3, -1, 120]);
    let text: String = run(&mut connection, "GET key").unwrap();

    let back = START - 3_600 * SECOND;
    clock.set(back);
    assert_eq!(throttle(&mut connection, "key 4 1 60"), [1, 5, 0, 3_480, 3_720]);
    assert_eq!(run::<String>(&mut connection, "GET key").unwrap(), text);
    assert_eq!(run::<i64>(&mut connection, "TTL key").unwrap(), 3_720);
    assert_eq!(throttle(&mut connection, "new 4 1 60"), [0, 5, 4, -1, 60]);

    clock.set(back + 3_480 * SECOND - 1);
    assert_eq!(throttle(&mut connection, "key 4 1 60"), [1, 5, 0, 1, 241]);
    clock.set(back + 3_480 * SECOND);
    assert_eq!(throttle(&mut connection, "key 4 1 60"), [0, 5, 0, -1, 300]);
    clock.set(START);
    assert_eq!(throttle(&mut connection, "key 4 1 60 0"), [0, 5, 2, -1, 180]);
}

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
fn the_key_holds_the_tat_and_is_gone_after_its_millisecond_when_the_limiter_is_full() {
    let (clock, server) = Clock::start(START);
    let mut connection = server.connect();
    let day = 86_400 * SECOND;
    let mut now = START - START % day;
    // One token comes back in two seconds, or in a nanosecond. In the second case, the key would be gone at once if its
    // expiry were rounded down.
    for (quota, increment) in [("0 1 2", 2 * SECOND), ("0 1000000000 1", 1)] {
        for past_the_millisecond in [0, 1, 2, 499_999, 500_000, 999_998, 999_999] {
            now += day;
            let tat = now + past_the_millisecond + increment;
            clock.set(tat - increment);
            throttle(&mut connection, &format!("key {quota}"));
            assert_eq!(run::<i64>(&mut connection, "GET key").unwrap(), tat);
            let ttl: i64 = run(&mut connection, "PTTL key").unwrap();
            let expires_at = now + ttl * MILLISECOND;
            assert!((0..MILLISECOND).contains(&(expires_at - tat)), "{ttl} for {tat}");
            clock.set(tat - 1);
            assert!(run::<bool>(&mut connection, "EXISTS key").unwrap(), "the key is gone too early");
            // A server keeps a key for the millisecond in which it expires.
            clock.set(expires_at + MILLISECOND);
            assert!(!run::<bool>(&mut connection, "EXISTS key").unwrap(), "the key is there too long");
            assert_eq!(throttle(&mut connection, &format!("key {quota} 0")), [0, 1, 1, -1, 0]);
        }
    }
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
