//! The rule for several quotas by property, against a second statement of it.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use proptest::prelude::*;

use super::*;
use crate::funnel::Quota;
use crate::funnel::check::{asked, refused, told};
use crate::funnel::model::{self, told_together};
use crate::funnel::properties::{any_quantity, any_taking, valid_quota};

const NOW: u64 = 1_800_000_000_000_000_000;

fn now() -> Moment {
    Moment::new(NOW).unwrap()
}

/// 1 to 8 quotas of limiters that there are now.
fn quotas() -> impl Strategy<Value = Vec<Quota>> {
    let quota = valid_quota().prop_map(|(quota, _)| quota).prop_filter("now", |quota| quota.at(now()).is_ok());
    prop::collection::vec(quota, 1..=MOST_QUOTAS)
}

/// The part of the limit's time, in thousandths, for which a TAT is ahead of now, or behind it; or none.
fn ahead() -> impl Strategy<Value = Vec<i64>> {
    prop::collection::vec(prop_oneof![-100..1_200_i64, Just(0), Just(1_000)], 0..=MOST_QUOTAS)
}

/// Few tokens, as parts of the least limit, or any number.
fn quantity() -> impl Strategy<Value = Result<i64, i64>> {
    prop_oneof![3 => (-4..5_i64).prop_map(Ok), 3 => (-1_100..1_200_i64).prop_map(Err), 1 => any_quantity().prop_map(Ok)]
}

/// The quotas now, their TATs, and the quantity of a call.
fn case(quotas: &[Quota], ahead: &[i64], quantity: Result<i64, i64>) -> (Funnels, Tats, i64) {
    let mut funnels = Funnels::new(quotas[0].at(now()).unwrap());
    for (quota, number) in quotas.iter().zip(1..).skip(1) {
        funnels.put(number, quota.at(now()).unwrap());
    }
    let mut tats = Tats::NONE;
    for (index, part) in ahead.iter().enumerate() {
        let quota = quotas[index % quotas.len()];
        let all = asked(quota, NOW, Taking::AllOrNone, 0).span(i128::from(quota.limit));
        let tat = i128::from(NOW) + all / 1_000 * i128::from(*part);
        tats.push(tat.try_into().ok().and_then(Moment::new).unwrap_or(Moment::LAST));
    }
    let least = quotas.iter().map(|quota| quota.limit).min().unwrap_or_default();
    let part = |part: i64| i128::from(least) * i128::from(part) / 1_000;
    (funnels, tats, quantity.unwrap_or_else(|thousandths| part(thousandths).try_into().unwrap_or(i64::MAX)))
}

fn nanos(tats: &Tats) -> Vec<i128> {
    tats.iter().map(|tat| i128::from(tat.nanos())).collect()
}

/// A decision in the second statement's words.
fn joint(decision: Decision) -> model::Joint {
    let change = match decision.change {
        Change::Nothing => model::Change::Nothing,
        Change::Store(tats) => model::Change::Store(nanos(&tats)),
        Change::Delete => model::Change::Delete,
    };
    model::Joint { told: told(decision.verdict), quota: decision.quota, change }
}

/// The TATs that a decision leaves.
fn left(tats: Tats, decision: &Decision) -> Tats {
    match decision.change {
        Change::Nothing => tats,
        Change::Store(tats) => tats,
        Change::Delete => Tats::NONE,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 20 } else { 20_000 }))]

    #[test]
    fn every_decision_is_that_of_the_second_statement(
        quotas in quotas(), ahead in ahead(), taking in any_taking(), quantity in quantity(),
    ) {
        let (funnels, tats, quantity) = case(&quotas, &ahead, quantity);
        let asked: Vec<_> = quotas.iter().map(|quota| asked(*quota, NOW, taking, quantity)).collect();
        let expected = told_together(&asked, &nanos(&tats)).map_err(|(error, number)| (refused(error), number));
        let mut decided = funnels.decide(tats, taking, quantity).map(joint);
        if let (Ok(decided), Ok(expected)) = (&mut decided, &expected) {
            // The change of one quota alone.
            decided.told.change = expected.told.change;
        }
        prop_assert_eq!(decided, expected);
    }

    /// The verdict, and the state after it.
    #[test]
    fn a_quota_given_twice_decides_as_it_does_alone(
        quotas in quotas(), ahead in ahead(), taking in any_taking(), quantity in quantity(),
    ) {
        let alone = [quotas[0]];
        let (one, tats, quantity) = case(&alone, &ahead[..ahead.len().min(1)], quantity);
        let (twice, _, _) = case(&[quotas[0]; 2], &[], Ok(0));
        let mut both = tats;
        if let Some(tat) = tats.get(0) {
            both.push(tat);
        }
        let one = one.decide(tats, taking, quantity);
        let twice = twice.decide(both, taking, quantity);
        prop_assert_eq!(one.map(|one| one.verdict), twice.map(|twice| twice.verdict));
        if let (Ok(one), Ok(twice)) = (one, twice) {
            prop_assert_eq!(twice.quota, 1);
            let [one, twice] = [left(tats, &one), left(both, &twice)];
            prop_assert_eq!([one.get(0); 2], [twice.get(0), twice.get(1)]);
        }
    }

    #[test]
    fn a_call_and_its_refund_leave_the_tats_as_they_were(
        quotas in quotas(), ahead in ahead(), tokens in 0..1_000_i64,
    ) {
        let part = |index| ahead.get(index).map_or(1, |part: &i64| part.abs().max(1));
        let ahead: Vec<_> = (0..quotas.len()).map(part).collect();
        let (funnels, tats, tokens) = case(&quotas, &ahead, Err(tokens));
        // A TAT that has passed is not given back to.
        if tats.iter().all(|tat| tat > now())
            && let Ok(call) = funnels.decide(tats, Taking::AllOrNone, tokens) {
            let after = left(tats, &call);
            let refund = if call.verdict.limited { 0 } else { -tokens };
            let refunded = funnels.decide(after, Taking::AllOrNone, refund).unwrap();
            prop_assert_eq!(left(after, &refunded), tats);
        }
    }

    /// Each quota alone would have let the same calls through, whatever the others are.
    #[test]
    fn no_quota_lets_through_more_beside_others_than_alone(
        quotas in quotas(), steps in prop::collection::vec((0..300_u64, 0..400_i64), 1..20),
    ) {
        let mut tats = Tats::NONE;
        let mut alone: Vec<Option<Moment>> = vec![None; quotas.len()];
        let mut at = NOW;
        let longest = quotas.iter().map(|quota| asked(*quota, NOW, Taking::Nothing, 0).span(quota.limit.into())).max();
        let least = quotas.iter().map(|quota| quota.limit).min().unwrap_or_default();
        for (pause, tokens) in steps {
            at += u64::try_from(longest.unwrap_or_default()).unwrap_or(0) / 1_000 * pause;
            let quantity = i64::try_from(u128::from(least) * u128::try_from(tokens).unwrap() / 1_000).unwrap();
            let Some(at) = Moment::new(at) else { break };
            let Ok(funnels) = quotas.iter().map(|quota| quota.at(at)).collect::<Result<Vec<_>, _>>() else { break };
            let mut together = Funnels::new(funnels[0]);
            for (funnel, number) in funnels.iter().zip(1..).skip(1) {
                together.put(number, *funnel);
            }
            let call = together.decide(tats, Taking::AllOrNone, quantity).unwrap();
            tats = left(tats, &call);
            for (funnel, tat) in funnels.iter().zip(&mut alone) {
                let verdict = funnel.decide(*tat, Taking::AllOrNone, quantity).unwrap();
                prop_assert!(call.verdict.limited || !verdict.limited);
                if let (false, Change::Store(new)) = (call.verdict.limited, verdict.change) {
                    *tat = Some(new);
                }
            }
        }
    }
}

/// A call by fewer quotas leaves the others as they are; one by more starts them full.
#[test]
fn tats_beyond_the_quotas_of_a_call_stay_as_they_are() {
    let quota = |limit| Quota { limit, ..valid(10) };
    let quotas = [quota(10), quota(20), quota(30)];
    let (three, tats, _) = case(&quotas, &[500, 400, 300], Ok(1));
    let (one, _, _) = case(&quotas[..1], &[], Ok(1));
    let after = left(tats, &one.decide(tats, Taking::AllOrNone, 1).unwrap());
    assert!(after.get(0) > tats.get(0));
    assert_eq!([after.get(1), after.get(2), after.get(3)], [tats.get(1), tats.get(2), None]);
    let single = tats.after(one.first.decide(tats.get(0), Taking::AllOrNone, 1).unwrap().change, now());
    assert_eq!(single, Change::Store(after));

    let (_, first, _) = case(&quotas[..1], &[500], Ok(1));
    let more = left(first, &three.decide(first, Taking::AllOrNone, 1).unwrap());
    assert_eq!(more.iter().count(), 3);
    let second = asked(quotas[1], NOW, Taking::AllOrNone, 0).span(1);
    assert_eq!(more.get(1).map(|tat| i128::from(tat.nanos())), Some(i128::from(NOW) + second));
}

fn valid(limit: u64) -> Quota {
    let [count, period] = [1, 60].map(|number| std::num::NonZero::new(number).unwrap());
    Quota { limit, count, period, unit: crate::funnel::Unit::Seconds }
}
