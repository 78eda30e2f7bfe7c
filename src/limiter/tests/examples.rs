//! Examples of the rule. Each call is told the time.

use std::num::NonZero;

use super::helpers::{Decided, moment, throttle};
use super::model::Change;
use crate::error::Error;
use crate::funnel::{Funnel, Moment, Quota, Span, Unit};

const START: u64 = 1_800_000_000_000_000_000;
const SECOND: u64 = 1_000_000_000;
const YEAR: u64 = 31_536_000;
const MAX: u64 = i64::MAX.unsigned_abs();

/// A quota and its state, as a key holds it.
struct Limiter {
    quota: Quota,
    tat: Option<Moment>,
}

impl Limiter {
    fn new(max_burst: u64, count: u64, period: u64) -> Self {
        Self { quota: quota(max_burst, count, period), tat: None }
    }

    /// Makes a call this many nanoseconds after the start.
    fn take(&mut self, time: u64, quantity: i64) -> Decided {
        let verdict = throttle(self.quota.at(moment(START + time)).unwrap(), self.tat, quantity);
        self.tat = match verdict.change {
            Change::Nothing => self.tat,
            Change::Store(tat) => Some(tat),
            Change::Delete => None,
        };
        verdict
    }

    /// Makes the same call, and returns (allowed, remaining, retry_after, reset_after).
    fn answer(&mut self, time: u64, quantity: i64) -> (bool, u64, Option<u64>, u64) {
        let verdict = self.take(time, quantity);
        (!verdict.limited, verdict.remaining, verdict.retry_after.map(|wait| wait.0), verdict.reset_after.0)
    }
}

/// Makes a quota whose period is in seconds.
fn quota(max_burst: u64, count: u64, period: u64) -> Quota {
    let (count, period) = (NonZero::new(count).unwrap(), NonZero::new(period).unwrap());
    Quota { limit: max_burst + 1, count, period: Unit::Seconds.in_nanos(period) }
}

fn funnel(now: u64, max_burst: u64, count: u64, period: u64) -> Result<Funnel, Error> {
    quota(max_burst, count, period).at(moment(now))
}

#[test]
fn the_published_table_of_redis_cell() {
    let mut limiter = Limiter::new(4, 1, 1);
    assert_eq!(limiter.answer(0, 6), (false, 5, None, 0), "6 of 5 never pass");
    for taken in 1..=5 {
        assert_eq!(limiter.answer(0, 1), (true, 5 - taken, None, taken * SECOND));
    }
    assert_eq!(limiter.answer(0, 1), (false, 0, Some(SECOND), 5 * SECOND));
    assert_eq!(limiter.answer(3_000_000_000, 1), (true, 2, None, 3_000_000_000));
    assert_eq!(limiter.answer(3_100_000_000, 1), (true, 1, None, 3_900_000_000));
    assert_eq!(limiter.answer(4_000_000_000, 1), (true, 1, None, 4_000_000_000));
    assert_eq!(limiter.answer(8_000_000_000, 1), (true, 4, None, 1_000_000_000));
    assert_eq!(limiter.answer(9_500_000_000, 1), (true, 4, None, 1_000_000_000));
    assert_eq!(limiter.answer(9_500_000_000, 0), (true, 4, None, 1_000_000_000), "a look takes nothing");
    assert_eq!(limiter.answer(9_500_000_000, 2), (true, 2, None, 3_000_000_000));
    assert_eq!(limiter.answer(9_500_000_000, 5), (false, 2, Some(3_000_000_000), 3_000_000_000));
}

#[test]
fn a_full_limiter_lets_its_limit_through_at_once() {
    // Half a token a second is one every two seconds.
    for (limit, count, period, calls) in [(15, 1, 2, 20), (5, 1, 2, 10)] {
        let mut limiter = Limiter::new(limit - 1, count, period);
        let allowed = (0..calls).filter(|_| !limiter.take(0, 1).limited).count();
        assert_eq!(allowed as u64, limit);
        // The next call has to wait for a token to come back.
        assert!(limiter.take(2 * SECOND - 1, 1).limited);
        assert!(!limiter.take(2 * SECOND, 1).limited);
        assert!(limiter.take(2 * SECOND, 1).limited);
    }
}

#[test]
fn a_call_passes_at_the_very_nanosecond_it_was_told() {
    for (max_burst, count, period) in [(0, 1, 1), (0, 3, 1), (6, 7, 11), (0, 1_000_000_000, 1), (0, 1, YEAR)] {
        let mut limiter = Limiter::new(max_burst, count, period);
        assert!(!limiter.take(0, i64::try_from(max_burst + 1).unwrap()).limited);
        let wait = limiter.take(0, 1).retry_after.unwrap().0;
        assert_eq!(limiter.answer(wait - 1, 1).2, Some(1));
        assert!(!limiter.take(wait, 1).limited);
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
        let mut limiter = Limiter::new(2, count, period);
        assert_eq!(limiter.take(0, 1).reset_after, Span(increment), "{count} in {period} s");
        assert_eq!(limiter.take(0, 1).remaining, 1);
        assert_eq!(limiter.take(0, 1).remaining, 0);
        assert!(limiter.take(0, 1).limited);
    }
}

#[test]
fn a_fast_rate_never_shows_more_remaining_than_its_limit() {
    // 666,667 a second with a burst of 15: a token comes back in 1499.99 ns, which is not a whole number.
    let mut limiter = Limiter::new(15, 666_667, 1);
    for taken in 1..=16 {
        assert_eq!(limiter.take(0, 1).remaining, 16 - taken);
    }
    assert!(limiter.take(0, 1).limited);
}

#[test]
fn quantities_in_bytes() {
    // A gigabit a second in packets of 1,500 bytes, a hundred of them at once: each takes 12 us.
    let mut limiter = Limiter::new(149_999, 125_000_000, 1);
    for packet in 1..=100 {
        assert_eq!(limiter.answer(0, 1_500), (true, 150_000 - packet * 1_500, None, packet * 12_000));
    }
    assert_eq!(limiter.answer(0, 1_500), (false, 0, Some(12_000), 1_200_000));
    assert!(limiter.take(11_999, 1_500).limited);
    assert!(!limiter.take(12_000, 1_500).limited);
}

#[test]
fn rounding_does_not_grow_with_the_quantity() {
    // A third of a second is not a whole number of nanoseconds; three thirds are exactly a second.
    let mut limiter = Limiter::new(2_999_999, 3, 1);
    assert_eq!(limiter.take(0, 3_000_000).reset_after, Span(1_000_000 * SECOND));
    let mut limiter = Limiter::new(2_999_999, 3, 1);
    assert_eq!(limiter.take(0, 2_999_999).reset_after, Span(999_999_666_666_666));
}

#[test]
fn a_tat_that_has_passed_is_a_full_limiter() {
    let funnel = funnel(START, 4, 1, 1).unwrap();
    let fresh = throttle(funnel, None, 2);
    for tat in [0, 1, START - 1, START] {
        assert_eq!(throttle(funnel, Some(moment(tat)), 2), fresh);
    }
}

#[test]
fn a_tat_beyond_the_tolerance_limits_even_a_look() {
    let funnel = funnel(START, 4, 1, 1).unwrap();
    let at_tolerance = throttle(funnel, Some(moment(START + 5 * SECOND)), 0);
    assert_eq!((at_tolerance.limited, at_tolerance.remaining), (false, 0));
    let beyond = throttle(funnel, Some(moment(START + 5 * SECOND + 1)), 0);
    assert_eq!((beyond.limited, beyond.remaining, beyond.retry_after), (true, 0, Some(Span(1))));
    let last = throttle(funnel, Some(moment(MAX)), 5);
    assert_eq!((last.limited, last.reset_after), (true, Span(MAX - START)));
    assert_eq!(last.retry_after, Some(Span(MAX - START)));
}

#[test]
fn a_quantity_beyond_the_limit_never_passes() {
    let funnel = funnel(START, 4, 1, 1).unwrap();
    for quantity in [6, 7, i64::MAX - 1, i64::MAX] {
        for tat in [None, Some(moment(START + 3 * SECOND)), Some(moment(MAX))] {
            let verdict = throttle(funnel, tat, quantity);
            assert!(verdict.limited && verdict.retry_after.is_none() && verdict.change == Change::Nothing);
        }
    }
}

#[test]
fn an_increment_under_a_nanosecond_does_not_exist() {
    assert_eq!(funnel(START, 0, 1_000_000_001, 1), Err(Error::TooFast));
    assert_eq!(funnel(START, 0, MAX, 9_223_372_036), Err(Error::TooFast));
    assert!(funnel(START, 0, 1_000_000_000, 1).is_ok());
    assert!(funnel(START, 0, MAX, 9_223_372_037).is_ok());
    // The token must not be free, as it would be if its time were rounded down to 0: the call stores a new TAT.
    let verdict = throttle(funnel(START, 0, 999_999_999, 1).unwrap(), None, 1);
    assert_eq!(verdict.change, Change::Store(moment(START + 1)));
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

/// A million a day is multiplied in 128 bits.
#[test]
fn a_token_that_comes_back_in_a_nanosecond_does_not_remain_yet() {
    let funnel = funnel(START, 999_999, 1_000_000, 86_400).unwrap();
    // Three tokens come back every 259.2 ms, and 999,997 would remain at that moment.
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
