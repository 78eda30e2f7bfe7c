//! Exhaustive tests of small limiters: for every call for a few tokens, and every nearby TAT, the module decides as the
//! model does.

use std::num::NonZero;
use std::ops::RangeInclusive;

use super::helpers::{TAKINGS, assert_as_the_model, is_valid_as_in_the_model, moment, nanos, stated, tats_from};
use crate::funnel::{Moment, Quota};
use crate::limiter::Taking;

const QUANTITIES: RangeInclusive<i64> = -7..=7;

/// Returns the moments of the calls: one soon after the epoch, and one shortly before the last moment that a key can
/// hold.
fn nows() -> [u64; 2] {
    [4, nanos(Moment::LAST) - 20]
}

/// Returns quotas of a few tokens, with periods of a few nanoseconds.
fn quotas(most: u64, counts: RangeInclusive<u64>, periods: RangeInclusive<u128>) -> impl Iterator<Item = Quota> {
    let rates = counts.flat_map(move |count| periods.clone().map(move |period| (count, period)));
    rates.flat_map(move |(count, period)| {
        let (count, period) = (NonZero::new(count).unwrap(), NonZero::new(period).unwrap());
        (0..=most).map(move |limit| Quota { limit, count, period })
    })
}

fn calls() -> impl Iterator<Item = (Taking, i64)> {
    TAKINGS.iter().flat_map(|taking| QUANTITIES.map(|quantity| (*taking, quantity)))
}

#[test]
#[cfg_attr(miri, ignore = "takes an hour, and the rule has no unsafe code")]
fn every_call_on_a_small_limiter_is_decided_as_by_the_model() {
    for now in nows() {
        for quota in quotas(5, 1..=4, 1..=6) {
            if !is_valid_as_in_the_model(quota, now) {
                continue;
            }
            let latest = now + stated(quota).tolerance() as u64 + 3;
            let stored = (now - 3..=latest.min(nanos(Moment::LAST))).map(|tat| tats_from(&[moment(tat)]));
            for tats in stored.chain([None]) {
                for (taking, quantity) in calls() {
                    assert_as_the_model(&[quota], now, tats.as_ref(), taking, quantity);
                }
            }
        }
    }
}

/// The key holds as many TATs as the call has quotas, or fewer, or one more.
#[test]
#[cfg_attr(miri, ignore = "takes an hour, and the rule has no unsafe code")]
fn every_call_on_a_small_limiter_with_two_quotas_is_decided_as_by_the_model() {
    let [now, _] = nows();
    let tats = [now - 1, now, now + 1, now + 3, now + 7].map(moment);
    let two = tats.iter().flat_map(|first| tats.map(|second| vec![*first, second]));
    let three = [[now + 2; 3], [now - 1, now - 1, now + 3]].map(|tats| tats.map(moment).to_vec());
    let stored: Vec<_> = two.chain(tats.map(|tat| vec![tat])).chain(three).chain([vec![]]).collect();
    for first in quotas(3, 1..=2, 2..=4) {
        for second in quotas(3, 1..=2, 2..=4) {
            for tats in &stored {
                for (taking, quantity) in calls() {
                    assert_as_the_model(&[first, second], now, tats_from(tats).as_ref(), taking, quantity);
                }
            }
        }
    }
}
