//! The rule by property, over thousands of random histories, against a second statement of it in big rationals.

#![allow(
    clippy::unwrap_used,
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking"
)]

use num_bigint::BigInt;
use num_rational::BigRational;
use proptest::prelude::*;

use super::*;

/// The rule as its contract states it, in numbers without bounds, and `remaining` by search instead of by formula.
mod statement {
    use super::*;

    pub struct Funnel {
        pub now: BigInt,
        pub limit: BigInt,
        /// Nanoseconds that one token takes to leak, exactly.
        pub per_token: BigRational,
    }

    #[derive(Debug, PartialEq)]
    pub struct Verdict {
        pub limited: bool,
        pub remaining: BigInt,
        pub retry_after: BigInt,
        pub reset_after: BigInt,
        pub new_tat: Option<BigInt>,
    }

    impl Funnel {
        pub fn time_to_leak(&self, tokens: &BigInt) -> BigInt {
            (BigRational::from(tokens.clone()) * &self.per_token)
                .floor()
                .to_integer()
        }

        pub fn decide(&self, tat: Option<BigInt>, quantity: BigInt) -> Verdict {
            let zero = BigInt::from(0);
            let tat = tat.unwrap_or(self.now.clone());
            let increment = self.time_to_leak(&quantity);
            let tolerance = self.time_to_leak(&self.limit);
            let base = tat.clone().max(self.now.clone());
            let wait = &base + &increment - &tolerance - &self.now;
            let limited = quantity > self.limit || wait > zero;
            let reset_after = if limited {
                (&tat - &self.now).max(zero.clone())
            } else {
                &base + &increment - &self.now
            };
            Verdict {
                remaining: self.most_tokens_within(&tolerance - &reset_after),
                retry_after: if !limited || quantity > self.limit {
                    BigInt::from(-1)
                } else {
                    wait
                },
                new_tat: (!limited && increment > zero).then(|| &base + &increment),
                limited,
                reset_after,
            }
        }

        /// The largest r from 0 to the limit whose tokens leak within `room`, else 0.
        fn most_tokens_within(&self, room: BigInt) -> BigInt {
            let (mut least, mut most) = (BigInt::from(0), self.limit.clone());
            while least < most {
                let middle: BigInt = (&least + &most + 1) / 2;
                if self.time_to_leak(&middle) <= room {
                    least = middle;
                } else {
                    most = middle - 1;
                }
            }
            least
        }
    }
}

/// The arguments of a call, in range.
#[derive(Debug, Clone, Copy)]
struct Quota {
    max_burst: u64,
    count: u64,
    period: u64,
    nanos_per_unit: NonZero<u64>,
}

impl Quota {
    fn at(self, now: u64) -> Result<Funnel, Error> {
        let (count, period) = (
            NonZero::new(self.count).unwrap(),
            NonZero::new(self.period).unwrap(),
        );
        Funnel::new(
            Nanos(now),
            self.max_burst,
            count,
            period,
            self.nanos_per_unit,
        )
    }

    fn stated_at(self, now: u64) -> statement::Funnel {
        statement::Funnel {
            now: now.into(),
            limit: BigInt::from(self.max_burst) + 1,
            per_token: BigRational::new(
                BigInt::from(self.period) * self.nanos_per_unit.get(),
                self.count.into(),
            ),
        }
    }
}

/// Integers of every magnitude alike, from `least` to 2^63 - 1.
fn magnitude(least: u64) -> impl Strategy<Value = u64> {
    (any::<u64>(), 1..64_u32).prop_map(move |(bits, shift)| (bits >> shift).max(least))
}

fn quota() -> impl Strategy<Value = Quota> {
    quota_of(magnitude(0), magnitude(1), magnitude(1))
}

fn quota_of(
    max_burst: impl Strategy<Value = u64>,
    count: impl Strategy<Value = u64>,
    period: impl Strategy<Value = u64>,
) -> impl Strategy<Value = Quota> {
    let unit = prop_oneof![Just(Nanos::PER_SECOND), Just(Nanos::PER_MILLISECOND)];
    (max_burst, count, period, unit).prop_map(|(max_burst, count, period, nanos_per_unit)| Quota {
        max_burst,
        count,
        period,
        nanos_per_unit,
    })
}

/// Quotas that make a funnel, at a `now` that leaves room for a history.
fn valid_quota() -> impl Strategy<Value = (Quota, u64)> {
    let usual = quota_of(0..1_000_u64, 1..100_000_u64, 1..100_000_u64);
    let now = prop_oneof![Just(1_800_000_000_000_000_000), 1..1_u64 << 62];
    (prop_oneof![quota(), usual], now).prop_filter("no such funnel", |&(quota, now)| {
        quota
            .at(now)
            .is_ok_and(|funnel| funnel.tolerance.0 < 1 << 55)
    })
}

/// One step of a history: how the time moves, and how many tokens are asked for. Both as parts of what the funnel
/// holds, so that short and long funnels alike come to be empty, half full and full.
#[derive(Debug, Clone, Copy)]
struct Step {
    pause: Pause,
    quantity: Quantity,
}

#[derive(Debug, Clone, Copy)]
enum Pause {
    No,
    Nanosecond,
    /// Thousandths of the tolerance.
    Part(u64),
    /// As long as the last reply told, or one nanosecond less.
    RetryAfter,
    AlmostRetryAfter,
}

#[derive(Debug, Clone, Copy)]
enum Quantity {
    /// Thousandths of the limit.
    Part(u64),
    Few(u64),
    Remaining,
    OneMoreThanRemaining,
    Any(u64),
}

fn history() -> impl Strategy<Value = Vec<Step>> {
    let pause = prop_oneof![
        2 => Just(Pause::No),
        1 => Just(Pause::Nanosecond),
        2 => (0..1_200_u64).prop_map(Pause::Part),
        2 => Just(Pause::RetryAfter),
        2 => Just(Pause::AlmostRetryAfter),
    ];
    let quantity = prop_oneof![
        2 => (0..1_100_u64).prop_map(Quantity::Part),
        4 => (0..4_u64).prop_map(Quantity::Few),
        2 => Just(Quantity::Remaining),
        1 => Just(Quantity::OneMoreThanRemaining),
        1 => magnitude(0).prop_map(Quantity::Any),
    ];
    prop::collection::vec(
        (pause, quantity).prop_map(|(pause, quantity)| Step { pause, quantity }),
        1..30,
    )
}

/// A call of a history, with all that it was decided from.
#[derive(Debug, Clone, Copy)]
struct Call {
    now: u64,
    tat: Option<Nanos>,
    quantity: u64,
    verdict: Verdict,
}

fn play(quota: Quota, start: u64, steps: &[Step]) -> Vec<Call> {
    let (mut now, mut tat) = (start, None);
    let mut last: Option<Verdict> = None;
    let mut calls = Vec::new();
    for step in steps {
        let funnel = quota.at(now).unwrap();
        let told = last
            .and_then(|verdict| verdict.retry_after)
            .map_or(0, |wait| wait.0);
        now += match step.pause {
            Pause::No => 0,
            Pause::Nanosecond => 1,
            Pause::Part(thousandths) => funnel.tolerance.0 / 1_000 * thousandths,
            Pause::RetryAfter => told,
            Pause::AlmostRetryAfter => told.saturating_sub(1),
        };
        let Ok(funnel) = quota.at(now) else { break };
        let remaining = funnel.decide(tat, 0).remaining;
        let quantity = match step.quantity {
            Quantity::Part(thousandths) => {
                (u128::from(funnel.limit) * u128::from(thousandths) / 1_000) as u64
            }
            Quantity::Few(tokens) | Quantity::Any(tokens) => tokens,
            Quantity::Remaining => remaining,
            Quantity::OneMoreThanRemaining => remaining + 1,
        };
        let verdict = funnel.decide(tat, quantity);
        calls.push(Call {
            now,
            tat,
            quantity,
            verdict,
        });
        tat = verdict.new_tat.or(tat);
        last = Some(verdict);
    }
    calls
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_answer_is_that_of_the_second_statement((quota, start) in valid_quota(), steps in history()) {
        for Call { now, tat, quantity, verdict } in play(quota, start, &steps) {
            let stated = quota.stated_at(now).decide(tat.map(|tat| tat.0.into()), quantity.into());
            prop_assert_eq!(BigInt::from(verdict.limit), BigInt::from(quota.max_burst) + 1);
            prop_assert_eq!(stated, statement::Verdict {
                limited: verdict.limited,
                remaining: verdict.remaining.into(),
                retry_after: verdict.retry_after.map_or((-1).into(), |wait| wait.0.into()),
                reset_after: verdict.reset_after.0.into(),
                new_tat: verdict.new_tat.map(|tat| tat.0.into()),
            });
        }
    }

    #[test]
    fn any_stored_tat_is_answered_as_the_second_statement_does(
        (quota, now) in valid_quota(), tat in magnitude(0), offset in -3_i64..4, quantity in magnitude(0),
    ) {
        let funnel = quota.at(now).unwrap();
        let near_full = (now + funnel.tolerance.0).saturating_add_signed(offset);
        for tat in [tat, near_full] {
            for quantity in [quantity, quantity % funnel.limit, 0, 1] {
                let verdict = funnel.decide(Some(Nanos(tat)), quantity);
                let stated = quota.stated_at(now).decide(Some(tat.into()), quantity.into());
                prop_assert_eq!(verdict.limited, stated.limited);
                prop_assert_eq!(BigInt::from(verdict.remaining), stated.remaining);
                prop_assert_eq!(BigInt::from(verdict.reset_after.0), stated.reset_after);
                prop_assert_eq!(verdict.new_tat.map(|tat| BigInt::from(tat.0)), stated.new_tat);
                prop_assert_eq!(
                    verdict.retry_after.map_or(BigInt::from(-1), |wait| wait.0.into()), stated.retry_after
                );
            }
        }
    }

    #[test]
    fn a_funnel_is_refused_exactly_where_its_numbers_do_not_fit(quota in quota(), now in magnitude(0)) {
        let stated = quota.stated_at(now);
        let most = BigInt::from(i64::MAX);
        let expected = if stated.per_token < BigRational::from(BigInt::from(1)) {
            Err(Error::TooFast)
        } else if stated.limit > most || &stated.now + stated.time_to_leak(&stated.limit) > most {
            Err(Error::TooLarge)
        } else {
            Ok(())
        };
        prop_assert_eq!(quota.at(now).map(|_| ()), expected);
    }

    #[test]
    fn remaining_tokens_pass_and_one_more_does_not((quota, start) in valid_quota(), steps in history()) {
        for Call { now, tat, verdict, .. } in play(quota, start, &steps) {
            let (funnel, tat) = (quota.at(now).unwrap(), verdict.new_tat.or(tat));
            prop_assert!(verdict.remaining <= verdict.limit);
            prop_assert!(!funnel.decide(tat, verdict.remaining).limited);
            prop_assert!(funnel.decide(tat, verdict.remaining + 1).limited);
        }
    }

    #[test]
    fn waiting_retry_after_passes_and_a_nanosecond_less_does_not((quota, start) in valid_quota(), steps in history()) {
        for Call { now, tat, quantity, verdict } in play(quota, start, &steps) {
            let Some(Nanos(wait)) = verdict.retry_after else {
                prop_assert_eq!(verdict.limited, quantity > verdict.limit);
                continue;
            };
            prop_assert!(verdict.limited && wait > 0);
            // Time may run out in 2262.
            let Ok(funnel) = quota.at(now + wait) else { continue };
            prop_assert!(!funnel.decide(tat, quantity).limited);
            prop_assert!(quota.at(now + wait - 1).unwrap().decide(tat, quantity).limited);
        }
    }

    #[test]
    fn a_limited_call_changes_nothing((quota, start) in valid_quota(), steps in history()) {
        for Call { now, tat, verdict, .. } in play(quota, start, &steps) {
            if verdict.limited {
                prop_assert_eq!(verdict.new_tat, None);
                let look = quota.at(now).unwrap().decide(tat, 0);
                prop_assert_eq!((verdict.remaining, verdict.reset_after), (look.remaining, look.reset_after));
            }
        }
    }

    #[test]
    fn looking_never_changes_an_answer((quota, start) in valid_quota(), steps in history()) {
        let plain = play(quota, start, &steps);
        let mut tat = None;
        for call in &plain {
            let funnel = quota.at(call.now).unwrap();
            for _ in 0..2 {
                let look = funnel.decide(tat, 0);
                prop_assert_eq!(look.new_tat, None);
                tat = look.new_tat.or(tat);
            }
            let verdict = funnel.decide(tat, call.quantity);
            prop_assert_eq!(verdict, call.verdict);
            tat = verdict.new_tat.or(tat);
        }
    }

    /// Each call is rounded in the caller's favour by less than the nanosecond, so `calls` of them by less than that
    /// many nanoseconds' worth of tokens.
    #[test]
    fn no_span_lets_more_through_than_burst_and_rate((quota, start) in valid_quota(), steps in history()) {
        let taken: Vec<_> = play(quota, start, &steps).into_iter().filter(|call| !call.verdict.limited).collect();
        let per_token = quota.stated_at(start).per_token;
        for first in 0..taken.len() {
            let mut tokens = BigInt::from(0);
            for last in first..taken.len() {
                tokens += taken[last].quantity;
                let (span, calls) = (taken[last].now - taken[first].now, last - first + 1);
                let most = BigRational::from(BigInt::from(quota.max_burst) + 1)
                    + BigRational::from(BigInt::from(span) + calls) / &per_token;
                prop_assert!(BigRational::from(tokens.clone()) <= most, "{} in {} ns", tokens, span);
            }
        }
    }
}
