//! Helpers for all tests of the rule: calls on a limiter with one quota, and conversions to the model's types.

use std::ops::Deref;

use super::model::{self, Change};
use crate::error::{CommandError, Error, Place};
use crate::funnel::{Funnel, Moment, Quota, Span};
use crate::limiter::{self, Decision, Limiter, Taking, Tats, Verdict};

/// Lists the variants of `Taking`. If a variant is missing, the `match` does not compile.
macro_rules! takings {
    ($($taking:ident),*) => {
        pub const TAKINGS: &[Taking] = &[$(Taking::$taking),*];

        fn taking_of_the_model(taking: Taking) -> model::Taking {
            match taking {
                $(Taking::$taking => model::Taking::$taking,)*
            }
        }
    };
}

takings!(AllOrNone, Always, UpTo, Nothing);

pub fn moment(nanos: u64) -> Moment {
    Moment::new(nanos).unwrap()
}

pub fn nanos(moment: Moment) -> u64 {
    moment.since_epoch().0
}

/// The decision on a call to a limiter with one quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decided {
    pub verdict: Verdict,
    pub change: Change<Moment>,
}

impl Deref for Decided {
    type Target = Verdict;

    fn deref(&self) -> &Verdict {
        &self.verdict
    }
}

/// Decides a call on a limiter that has only this quota.
pub fn decide(quota: Funnel, tat: Option<Moment>, taking: Taking, quantity: i64) -> Result<Decided, Error> {
    let tats = tat.map(|first| Tats { first, rest: Vec::new() });
    let limiter = Limiter { first: quota, rest: Vec::new() };
    let decision = limiter.decide(tats, taking, quantity).map_err(|error| error.reason)?;
    let change = match decision.change {
        limiter::Change::Nothing => Change::Nothing,
        limiter::Change::Store(tats) => Change::Store(tats.first),
        limiter::Change::Delete => Change::Delete,
    };
    Ok(Decided { verdict: decision.verdict, change })
}

pub fn throttle(quota: Funnel, tat: Option<Moment>, quantity: i64) -> Decided {
    decide(quota, tat, Taking::AllOrNone, quantity).unwrap()
}

/// Converts the quota to the model's type.
pub fn stated(quota: Quota) -> model::Quota {
    let Quota { limit, count, period } = quota;
    let period = period.get().try_into().unwrap();
    model::Quota { max_burst: i128::from(limit) - 1, count: count.get().into(), period }
}

/// Asserts that a quota is refused at `now` exactly when the model refuses it. Returns whether the quota is valid.
pub fn is_valid_as_in_the_model(quota: Quota, now: u64) -> bool {
    let expected = stated(quota).at(now.into()).map_err(error_of_the_module);
    assert_eq!(quota.at(moment(now)).map(|_| ()), expected, "{quota:?} at {now}");
    expected.is_ok()
}

fn error_of_the_module(error: model::Error) -> Error {
    match error {
        model::Error::TooFast => Error::TooFast,
        model::Error::TooLarge => Error::TooLarge,
        model::Error::DebtTooLong => Error::DebtTooLong,
    }
}

/// Returns a limiter with these quotas, or the error of a quota that is not valid.
pub fn limiter(quotas: &[Quota], now: Moment) -> Result<Limiter, Error> {
    let rest = quotas[1..].iter().map(|quota| quota.at(now)).collect::<Result<_, _>>();
    Ok(Limiter { first: quotas[0].at(now)?, rest: rest? })
}

/// Returns the state with these TATs, or `None` if the list is empty.
pub fn tats_from(tats: &[Moment]) -> Option<Tats> {
    tats.split_first().map(|(first, rest)| Tats { first: *first, rest: rest.to_vec() })
}

pub fn nanos_of(tats: Option<&Tats>) -> Vec<i128> {
    tats.into_iter().flat_map(Tats::iter).map(|tat| nanos(tat).into()).collect()
}

/// Asserts that the module decides a call with these valid quotas as the model does.
pub fn assert_as_the_model(quotas: &[Quota], now: u64, tats: Option<&Tats>, taking: Taking, quantity: i64) {
    let stated: Vec<_> = quotas.iter().map(|quota| stated(*quota)).collect();
    let call = model::Call { taking: taking_of_the_model(taking), now: now.into(), quantity: quantity.into() };
    let expected = call.decide(&stated, &nanos_of(tats)).map_err(|(error, number)| CommandError {
        reason: error_of_the_module(error),
        place: if number == 1 { Place::Call } else { Place::Quota(number as u64) },
    });
    let limiter = limiter(quotas, moment(now)).unwrap();
    let decided = limiter.decide(tats.cloned(), taking, quantity).map(|Decision { verdict, change }| {
        assert_eq!(verdict.quota.is_some(), quotas.len() > 1, "a verdict names its quota if there are several");
        let span = |span: Span| i128::from(span.0);
        model::Decision {
            quota: verdict.quota.unwrap_or(1).try_into().unwrap(),
            verdict: model::Verdict {
                limited: verdict.limited,
                taken: verdict.taken.into(),
                limit: verdict.limit.into(),
                remaining: verdict.remaining.into(),
                retry_after: verdict.retry_after.map(span),
                reset_after: span(verdict.reset_after),
            },
            change: match change {
                limiter::Change::Nothing => Change::Nothing,
                limiter::Change::Store(tats) => Change::Store(nanos_of(Some(&tats))),
                limiter::Change::Delete => Change::Delete,
            },
        }
    });
    assert_eq!(decided, expected, "{taking:?} with quantity {quantity}, at {now}, for {quotas:?} and {tats:?}");
}
