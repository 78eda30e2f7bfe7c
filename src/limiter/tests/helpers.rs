//! Helpers of all tests of the rule: calls on a limiter with one quota, and the module's values in the model's words.

use std::ops::Deref;

use super::model::{Asked, Change, Joint, Refused, Told, Way, told_together};
use crate::error::{CommandError, Error, Place};
use crate::funnel::{Funnel, Moment, Quota, Span, Taking};
use crate::limiter::{self, Decision, Limiter, Tats, Verdict};

/// Lists the ways in which a call takes tokens, each with the model's. A list that lacks one does not compile.
macro_rules! takings {
    ($($taking:ident: $way:ident,)*) => {
        pub const TAKINGS: &[Taking] = &[$(Taking::$taking),*];

        fn way(taking: Taking) -> Way {
            match taking {
                $(Taking::$taking => Way::$way,)*
            }
        }
    };
}

takings! {
    AllOrNone: Throttle,
    InAnyCase: Charge,
    UpTo: Take,
    Nothing: Look,
}

pub fn moment(nanos: u64) -> Moment {
    Moment::new(nanos).unwrap()
}

pub fn nanos(moment: Moment) -> u64 {
    moment.since_epoch().0
}

/// A decided call on a limiter with one quota.
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
    let tats = tat.map(|first| Tats { first, further: Vec::new() });
    let limiter = Limiter { first: quota, further: Vec::new() };
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

/// Returns the call as the model takes it.
pub fn asked(quota: Quota, now: u64, taking: Taking, quantity: i64) -> Asked {
    Asked {
        way: way(taking),
        now: now.into(),
        max_burst: i128::from(quota.limit) - 1,
        count: quota.count.get().into(),
        period: quota.period.get().try_into().unwrap(),
        quantity: quantity.into(),
    }
}

pub fn refused(refused: Refused) -> Error {
    match refused {
        Refused::TooFast => Error::TooFast,
        Refused::TooLarge => Error::TooLarge,
        Refused::DebtTooLong => Error::DebtTooLong,
    }
}

/// Returns the decision as the model gives it.
pub fn told(Decided { verdict, change }: Decided) -> Told {
    let change = match change {
        Change::Nothing => Change::Nothing,
        Change::Store(tat) => Change::Store(nanos(tat).into()),
        Change::Delete => Change::Delete,
    };
    told_with(verdict, change)
}

/// Returns a verdict as the model gives it, with this change.
pub fn told_with(verdict: Verdict, change: Change) -> Told {
    let span = |span: Span| i128::from(span.0);
    Told {
        limited: verdict.limited,
        taken: verdict.taken.into(),
        limit: verdict.limit.into(),
        remaining: verdict.remaining.into(),
        retry_after: verdict.retry_after.map(span),
        reset_after: span(verdict.reset_after),
        change,
    }
}

/// Returns a limiter with these quotas, or the first error of one.
pub fn limiter(quotas: &[Quota], now: Moment) -> Result<Limiter, Error> {
    let further = quotas[1..].iter().map(|quota| quota.at(now)).collect::<Result<_, _>>();
    Ok(Limiter { first: quotas[0].at(now)?, further: further? })
}

/// Returns the state with these TATs; `None` if there are none.
pub fn tats_from(tats: &[Moment]) -> Option<Tats> {
    tats.split_first().map(|(first, further)| Tats { first: *first, further: further.to_vec() })
}

pub fn nanos_of(tats: Option<&Tats>) -> Vec<i128> {
    tats.into_iter().flat_map(Tats::iter).map(|tat| nanos(tat).into()).collect()
}

/// Asserts that a call with these quotas, which are valid, is decided as by the model.
pub fn assert_as_the_model(quotas: &[Quota], now: u64, tats: Option<&Tats>, taking: Taking, quantity: i64) {
    let asked: Vec<_> = quotas.iter().map(|quota| asked(*quota, now, taking, quantity)).collect();
    let expected = told_together(&asked, &nanos_of(tats)).map_err(|(reason, number)| CommandError {
        reason: refused(reason),
        place: if number == 1 { Place::Call } else { Place::Quota(number as u64) },
    });
    let limiter = limiter(quotas, moment(now)).unwrap();
    let decided = limiter.decide(tats.cloned(), taking, quantity).map(|Decision { verdict, change }| {
        assert_eq!(verdict.quota.is_some(), quotas.len() > 1, "a quota has a number if there are several");
        Joint {
            // Ignore this change: the model leaves the change of one quota in it.
            told: told_with(verdict, expected.as_ref().map_or(Change::Nothing, |joint| joint.told.change)),
            quota: verdict.quota.unwrap_or(1).try_into().unwrap(),
            change: match change {
                limiter::Change::Nothing => Change::Nothing,
                limiter::Change::Store(tats) => Change::Store(nanos_of(Some(&tats))),
                limiter::Change::Delete => Change::Delete,
            },
        }
    });
    assert_eq!(decided, expected, "{taking:?} {quantity} of {quotas:?} at {now} on {tats:?}");
}
