//! Examples of the rule, with the time of each call as an argument.

use std::num::NonZero;

use super::helpers::{Decided, moment, throttle};
use super::model::Change;
use crate::error::Error;
use crate::funnel::{Funnel, Quota, Span, Unit};

const START: u64 = 1_800_000_000_000_000_000;
const SECOND: u64 = 1_000_000_000;
const MILLISECOND: u64 = 1_000_000;
const YEAR: u64 = 31_536_000;
const MAX: u64 = i64::MAX.unsigned_abs();

/// Creates a quota whose period is in seconds.
fn quota(max_burst: u64, count: u64, period: u64) -> Quota {
    let (count, period) = (NonZero::new(count).unwrap(), NonZero::new(period).unwrap());
    Quota { limit: max_burst + 1, count, period: Unit::Seconds.in_nanos(period) }
}

fn funnel(now: u64, max_burst: u64, count: u64, period: u64) -> Result<Funnel, Error> {
    quota(max_burst, count, period).at(moment(now))
}

#[test]
fn the_published_table_of_redis_cell() {
    let mut tat = None;
    // Each row: milliseconds after the start, quantity, and the expected (allowed, remaining, retry_after,
    // reset_after).
    for (at, quantity, expected) in [
        (0, 6, (false, 5, None, 0)), // can never pass
        (0, 1, (true, 4, None, 1_000)),
        (0, 1, (true, 3, None, 2_000)),
        (0, 1, (true, 2, None, 3_000)),
        (0, 1, (true, 1, None, 4_000)),
        (0, 1, (true, 0, None, 5_000)),
        (0, 1, (false, 0, Some(1_000), 5_000)),
        (3_000, 1, (true, 2, None, 3_000)),
        (3_100, 1, (true, 1, None, 3_900)),
        (4_000, 1, (true, 1, None, 4_000)),
        (8_000, 1, (true, 4, None, 1_000)),
        (9_500, 1, (true, 4, None, 1_000)),
        (9_500, 0, (true, 4, None, 1_000)),
        (9_500, 2, (true, 2, None, 3_000)),
        (9_500, 5, (false, 2, Some(3_000), 3_000)),
    ] {
        let Decided { verdict, change } = throttle(funnel(START + at * MILLISECOND, 4, 1, 1).unwrap(), tat, quantity);
        let milliseconds = |span: Span| span.round_up(Unit::Milliseconds);
        let (wait, reset) = (verdict.retry_after.map(milliseconds), milliseconds(verdict.reset_after));
        assert_eq!((!verdict.limited, verdict.remaining, wait, reset), expected, "quantity {quantity} after {at} ms");
        if let Change::Store(new) = change {
            tat = Some(new);
        }
    }
}

#[test]
fn rates_from_one_a_year_to_one_a_nanosecond() {
    for (count, period, increment) in [
        (1, YEAR, YEAR * SECOND),
        (1, 1, SECOND),
        (1_000, 1, 1_000_000),
        (1_000_000, 1, 1_000),
        (999_999_999, 1, 1),
        (1_000_000_000, 1, 1),
        (60_000_000_000, 60, 1),
    ] {
        let verdict = throttle(funnel(START, 2, count, period).unwrap(), None, 1);
        assert_eq!((verdict.remaining, verdict.reset_after), (2, Span(increment)), "{count} in {period} s");
    }
}

#[test]
fn an_increment_under_a_nanosecond_does_not_exist() {
    assert_eq!(funnel(START, 0, 1_000_000_001, 1), Err(Error::TooFast));
    assert_eq!(funnel(START, 0, MAX, 9_223_372_036), Err(Error::TooFast));
    assert!(funnel(START, 0, 1_000_000_000, 1).is_ok());
    assert!(funnel(START, 0, MAX, 9_223_372_037).is_ok());
}

#[test]
fn the_extremes_of_every_argument_are_exact_or_an_error() {
    // max_burst
    assert_eq!(funnel(START, MAX, 1, 1), Err(Error::TooLarge));
    assert_eq!(funnel(START, MAX, 1_000_000_000, 1), Err(Error::TooLarge), "the limit itself overflows");
    assert_eq!(throttle(funnel(0, MAX - 1, 1_000_000_000, 1).unwrap(), None, i64::MAX).reset_after, Span(MAX));
    assert_eq!(funnel(1, MAX - 1, 1_000_000_000, 1), Err(Error::TooLarge));
    // count
    assert_eq!(throttle(funnel(START, 0, MAX, MAX).unwrap(), None, 1).reset_after, Span(SECOND));
    assert_eq!(throttle(funnel(START, 0, MAX, MAX - 1).unwrap(), None, 1).reset_after, Span(SECOND - 1));
    // period
    assert_eq!(funnel(START, 0, 1, MAX), Err(Error::TooLarge));
    let longest = (MAX - START) / SECOND;
    assert!(funnel(START, 0, 1, longest).is_ok());
    assert_eq!(funnel(START, 0, 1, longest + 1), Err(Error::TooLarge));
    // every argument at once
    assert_eq!(funnel(START, MAX, MAX, MAX), Err(Error::TooLarge));
    assert_eq!(funnel(START, MAX - 1, 1, MAX), Err(Error::TooLarge));
    // now
    assert_eq!(funnel(MAX, 0, 1, 1), Err(Error::TooLarge));
    assert_eq!(throttle(funnel(MAX - SECOND, 0, 1, 1).unwrap(), None, 1).change, Change::Store(moment(MAX)));
}

/// The quota is a million tokens a day, which needs 128-bit products.
#[test]
fn a_token_that_comes_back_in_a_nanosecond_does_not_remain_yet() {
    let funnel = funnel(START, 999_999, 1_000_000, 86_400).unwrap();
    // Three tokens come back in exactly 259.2 ms, so 999,997 remain when the limiter is that far from full.
    for (until_full, remaining) in [(259_200_001, 999_996), (259_200_000, 999_997), (259_199_999, 999_997)] {
        let tat = Some(moment(START + until_full));
        assert_eq!(throttle(funnel, tat, 0).remaining, remaining, "full in {until_full} ns");
    }
}

#[test]
fn spans_round_up_exactly() {
    for (nanos, seconds) in [(0, 0), (1, 1), (SECOND, 1), (2 * SECOND, 2), (2 * SECOND + 1, 3), (MAX, 9_223_372_037)] {
        assert_eq!(Span(nanos).round_up(Unit::Seconds), seconds);
    }
}
