//! Properties of the rule for one quota, checked on thousands of random histories of calls. These tests cover the large
//! numbers that `small.rs` does not.

use std::num::NonZero;

use proptest::prelude::*;

use super::helpers::{
    Decided, TAKINGS, assert_as_the_model, is_valid_as_in_the_model, moment, stated, tats_from, throttle,
};
use super::model::Change;
use crate::funnel::{Moment, Quota, Span, Unit};
use crate::limiter::Taking;

fn after(tat: Option<Moment>, verdict: &Decided) -> Option<Moment> {
    match verdict.change {
        Change::Nothing => tat,
        Change::Store(tat) => Some(tat),
        Change::Delete => None,
    }
}

/// Generates integers from `least` to 2^63 - 1. Each bit length is equally likely.
pub fn magnitude(least: u64) -> impl Strategy<Value = u64> {
    (any::<u64>(), 1..64_u32).prop_map(move |(bits, shift)| (bits >> shift).max(least))
}

pub fn any_quantity() -> impl Strategy<Value = i64> {
    prop_oneof![
        3 => magnitude(0).prop_map(u64::cast_signed),
        3 => magnitude(0).prop_map(|tokens| -tokens.cast_signed()),
        1 => Just(i64::MIN),
    ]
}

pub fn quota() -> impl Strategy<Value = Quota> {
    quota_of(any_limit(), magnitude(1), magnitude(1))
}

/// Generates limits from 0 to 2^63, as for a `max_burst` from -1 to 2^63 - 1.
fn any_limit() -> impl Strategy<Value = u64> {
    prop_oneof![8 => magnitude(0).prop_map(|max_burst| max_burst + 1), 1 => Just(0)]
}

fn quota_of(
    limit: impl Strategy<Value = u64>,
    count: impl Strategy<Value = u64>,
    period: impl Strategy<Value = u64>,
) -> impl Strategy<Value = Quota> {
    let unit = prop_oneof![Just(Unit::Seconds), Just(Unit::Milliseconds)];
    (limit, count, period, unit).prop_map(|(limit, count, period, unit)| Quota {
        limit,
        count: NonZero::new(count).unwrap(),
        period: unit.in_nanos(NonZero::new(period).unwrap()),
    })
}

/// Generates valid quotas, each with a `now` that leaves room for a history of calls before the year 2262. Some quotas
/// have round numbers: their tokens come back at whole nanoseconds, so a call can fall on that exact moment.
pub fn valid_quota() -> impl Strategy<Value = (Quota, u64)> {
    let usual = quota_of(0..1_000_u64, 1..100_000_u64, 1..100_000_u64);
    let power_of_ten = || (0..10_u32).prop_map(|power| 10_u64.pow(power));
    let round = quota_of(power_of_ten(), power_of_ten(), prop::sample::select(vec![1_u64, 60, 3_600, 86_400]));
    let now = prop_oneof![Just(1_800_000_000_000_000_000), 1..1_u64 << 62];
    (prop_oneof![quota(), usual, round], now).prop_filter("not a valid quota", |&(quota, now)| {
        quota.at(moment(now)).is_ok() && refill_time(quota, quota.limit) < 1 << 55
    })
}

/// Returns the time that this many tokens take to come back, in nanoseconds.
fn refill_time(quota: Quota, tokens: u64) -> u64 {
    stated(quota).refill_time(tokens.into()).try_into().unwrap()
}

/// One step of a history: how far time advances, and how many tokens the call asks for. Both may be relative to the
/// quota's tolerance and limit, so that limiters with short and long periods become full, half full and empty.
#[derive(Debug, Clone, Copy)]
struct Step {
    pause: Pause,
    quantity: Quantity,
}

#[derive(Debug, Clone, Copy)]
enum Pause {
    No,
    Nanosecond,
    /// A fraction of the tolerance, in thousandths.
    Part(u64),
    /// The `retry_after` of the last reply. `AlmostRetryAfter` is one nanosecond less.
    RetryAfter,
    AlmostRetryAfter,
}

#[derive(Debug, Clone, Copy)]
enum Quantity {
    /// A fraction of the limit, in thousandths. A negative fraction gives tokens back.
    Part(i64),
    Few(i64),
    Remaining,
    OneMoreThanRemaining,
    Any(i64),
}

pub fn any_taking() -> impl Strategy<Value = Taking> {
    prop::sample::select(TAKINGS)
}

/// Generates a history of calls, each of which takes all its tokens or none.
fn history() -> impl Strategy<Value = Vec<Step>> {
    let pause = prop_oneof![
        2 => Just(Pause::No),
        1 => Just(Pause::Nanosecond),
        2 => (0..1_200_u64).prop_map(Pause::Part),
        2 => Just(Pause::RetryAfter),
        2 => Just(Pause::AlmostRetryAfter),
    ];
    let quantity = prop_oneof![
        2 => (-1_100..1_100_i64).prop_map(Quantity::Part),
        4 => (-4..4_i64).prop_map(Quantity::Few),
        2 => Just(Quantity::Remaining),
        1 => Just(Quantity::OneMoreThanRemaining),
        1 => any_quantity().prop_map(Quantity::Any),
    ];
    let step = (pause, quantity).prop_map(|(pause, quantity)| Step { pause, quantity });
    prop::collection::vec(step, 1..if cfg!(miri) { 5 } else { 40 })
}

/// A call in a history, with its inputs and its decision.
#[derive(Debug, Clone, Copy)]
struct Call {
    now: u64,
    tat: Option<Moment>,
    quantity: i64,
    verdict: Decided,
}

fn play(quota: Quota, start: u64, steps: &[Step]) -> Vec<Call> {
    let (mut now, mut tat) = (start, None);
    let mut last: Option<Decided> = None;
    let mut calls = Vec::new();
    for step in steps {
        let told = last.and_then(|verdict| verdict.retry_after).map_or(0, |wait| wait.0);
        now += match step.pause {
            Pause::No => 0,
            Pause::Nanosecond => 1,
            Pause::Part(thousandths) => refill_time(quota, quota.limit) / 1_000 * thousandths,
            Pause::RetryAfter => told,
            Pause::AlmostRetryAfter => told.saturating_sub(1),
        };
        let Ok(funnel) = quota.at(moment(now)) else { break };
        let remaining = throttle(funnel, tat, 0).remaining;
        let quantity = match step.quantity {
            Quantity::Part(thousandths) => (i128::from(quota.limit) * i128::from(thousandths) / 1_000) as i64,
            Quantity::Few(tokens) | Quantity::Any(tokens) => tokens,
            Quantity::Remaining => remaining.cast_signed(),
            Quantity::OneMoreThanRemaining => remaining.cast_signed() + 1,
        };
        let verdict = throttle(funnel, tat, quantity);
        calls.push(Call { now, tat, quantity, verdict });
        tat = after(tat, &verdict);
        last = Some(verdict);
    }
    calls
}

proptest! {
    // Under Miri, which is thousands of times slower, run fewer cases.
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 4_000 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Makes calls at the moment when one more token becomes available, and one nanosecond before and after that
    /// moment.
    #[test]
    fn a_token_remains_from_its_very_nanosecond_on(
        (quota, now) in valid_quota(), tokens in prop_oneof![0..1_000_u64, magnitude(0)], from_the_top in any::<bool>(),
        taking in any_taking(),
    ) {
        let few = tokens.checked_rem(quota.limit).unwrap_or(0);
        let tokens = if from_the_top { quota.limit - few } else { few };
        let boundary = now + (refill_time(quota, quota.limit) - refill_time(quota, tokens));
        for tat in [boundary - 1, boundary, boundary + 1] {
            for quantity in [0, 1, tokens.cast_signed() - 1, tokens.cast_signed(), tokens.cast_signed() + 1] {
                assert_as_the_model(&[quota], now, tats_from(&[moment(tat)]).as_ref(), taking, quantity);
            }
        }
    }

    #[test]
    fn a_quota_is_refused_exactly_where_its_numbers_do_not_fit(quota in quota(), now in magnitude(0)) {
        is_valid_as_in_the_model(quota, now);
    }

    #[test]
    fn remaining_tokens_pass_and_one_more_does_not((quota, start) in valid_quota(), steps in history()) {
        for Call { now, tat, verdict, .. } in play(quota, start, &steps) {
            let (funnel, tat) = (quota.at(moment(now)).unwrap(), after(tat, &verdict));
            prop_assert!(verdict.remaining <= verdict.limit);
            // The first check also holds if 0 tokens remain: a call for 0 tokens is limited only if the TAT is beyond
            // the tolerance, which no history with one quota produces.
            prop_assert!(!throttle(funnel, tat, verdict.remaining.cast_signed()).limited);
            prop_assert!(throttle(funnel, tat, verdict.remaining.cast_signed() + 1).limited);
        }
    }

    #[test]
    fn waiting_retry_after_passes_and_a_nanosecond_less_does_not((quota, start) in valid_quota(), steps in history()) {
        for Call { now, tat, quantity, verdict, .. } in play(quota, start, &steps) {
            let Some(Span(wait)) = verdict.retry_after else {
                prop_assert_eq!(verdict.limited, i128::from(quantity) > i128::from(verdict.limit));
                continue;
            };
            prop_assert!(verdict.limited && wait > 0);
            // Near the year 2262, the quota may no longer be valid after the wait.
            let Ok(funnel) = quota.at(moment(now + wait)) else { continue };
            prop_assert!(!throttle(funnel, tat, quantity).limited);
            prop_assert!(throttle(quota.at(moment(now + wait - 1)).unwrap(), tat, quantity).limited);
        }
    }

    /// Rounding favours the caller by less than a nanosecond per call. Several calls may therefore take more than the
    /// burst and the rate allow, but the excess is less than what comes back in one nanosecond per call.
    #[test]
    fn no_span_lets_more_through_than_burst_and_rate((quota, start) in valid_quota(), steps in history()) {
        // Leave out the steps that give tokens back, because those tokens may be taken again.
        let steps: Vec<_> = steps.into_iter().filter(|step| !matches!(step.quantity,
            Quantity::Part(..0) | Quantity::Few(..0) | Quantity::Any(..0))).collect();
        let taken: Vec<_> = play(quota, start, &steps).into_iter().filter(|call| !call.verdict.limited).collect();
        let stated = stated(quota);
        for first in 0..taken.len() {
            let mut tokens = 0_i128;
            for last in first..taken.len() {
                tokens += i128::from(taken[last].quantity);
                let span = i128::from(taken[last].now - taken[first].now);
                let calls = (last - first + 1) as i128;
                // The tokens beyond the burst must come back within the span, plus a nanosecond for each call. `unwrap`
                // fails if a product does not fit.
                let beyond = (tokens - stated.limit()).max(0).checked_mul(stated.period);
                let most = (span + calls).checked_mul(stated.count);
                prop_assert!(beyond.unwrap() <= most.unwrap(), "{} tokens in {} ns", tokens, span);
            }
        }
    }
}
