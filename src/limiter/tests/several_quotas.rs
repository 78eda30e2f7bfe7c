//! Properties of the rule for several quotas, checked against the model.

use proptest::prelude::*;

use super::helpers::{assert_as_the_model, decide, limiter, moment, nanos_of, stated, tats_from};
use super::model;
use super::one_quota::{any_quantity, any_taking, valid_quota};
use crate::error::CommandError;
use crate::funnel::{Moment, Quota, Unit};
use crate::limiter::{Change, Limiter, MAX_QUOTAS, Taking, Tats, Verdict};

const NOW: u64 = 1_800_000_000_000_000_000;

fn now() -> Moment {
    moment(NOW)
}

/// Generates 1 to 8 quotas that are valid now.
fn quotas() -> impl Strategy<Value = Vec<Quota>> {
    let quota = valid_quota().prop_map(|(quota, _)| quota).prop_filter("invalid now", |quota| quota.at(now()).is_ok());
    prop::collection::vec(quota, 1..=MAX_QUOTAS)
}

/// Generates the time from now to each TAT, in thousandths of the tolerance. The time is negative if the TAT has
/// passed.
fn ahead() -> impl Strategy<Value = Vec<i64>> {
    prop::collection::vec(prop_oneof![-100..1_200_i64, Just(0), Just(1_000)], 0..=MAX_QUOTAS)
}

/// Generates the quantity of a call: `Ok` is a number of tokens, and `Err` a number of thousandths of the smallest
/// limit.
fn quantity() -> impl Strategy<Value = Result<i64, i64>> {
    prop_oneof![3 => (-4..5_i64).prop_map(Ok), 3 => (-1_100..1_200_i64).prop_map(Err), 1 => any_quantity().prop_map(Ok)]
}

/// Returns a limiter with these quotas, its TATs, and the quantity of a call.
fn case(quotas: &[Quota], ahead: &[i64], quantity: Result<i64, i64>) -> (Limiter, Option<Tats>, i64) {
    let tats = ahead.iter().zip(quotas.iter().cycle()).map(|(part, quota)| {
        let tat = i128::from(NOW) + stated(*quota).tolerance() / 1_000 * i128::from(*part);
        tat.try_into().ok().and_then(Moment::new).unwrap_or(Moment::LAST)
    });
    let tats: Vec<_> = tats.collect();
    let least = quotas.iter().map(|quota| quota.limit).min().unwrap_or_default();
    let part = |part: i64| i128::from(least) * i128::from(part) / 1_000;
    let quantity = quantity.unwrap_or_else(|thousandths| part(thousandths).try_into().unwrap_or(i64::MAX));
    (limiter(quotas, now()).unwrap(), tats_from(&tats), quantity)
}

fn tats_of(tats: Option<&Tats>) -> Vec<Moment> {
    tats.map_or_else(Vec::new, |tats| [&[tats.first], tats.rest.as_slice()].concat())
}

/// Makes a call, and updates the TATs.
fn call(limiter: &Limiter, tats: &mut Option<Tats>, taking: Taking, quantity: i64) -> Result<Verdict, CommandError> {
    let decision = limiter.decide(tats.clone(), taking, quantity)?;
    match decision.change {
        Change::Nothing => (),
        Change::Store(new) => *tats = Some(new),
        Change::Delete => *tats = None,
    }
    Ok(decision.verdict)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 20 } else { 20_000 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_decision_is_that_of_the_model(
        quotas in quotas(), ahead in ahead(), taking in any_taking(), quantity in quantity(),
    ) {
        let (_, tats, quantity) = case(&quotas, &ahead, quantity);
        assert_as_the_model(&quotas, NOW, tats.as_ref(), taking, quantity);
    }

    /// A call with the same quota twice gets the verdict of a call with that quota once, and stores its TAT twice.
    #[test]
    fn a_quota_given_twice_decides_as_it_does_alone(
        quotas in quotas(), ahead in ahead(), taking in any_taking(), quantity in quantity(),
    ) {
        let alone = [quotas[0]];
        let (one, mut tats, quantity) = case(&alone, &ahead[..ahead.len().min(1)], quantity);
        let (twice, _, _) = case(&[quotas[0]; 2], &[], Ok(0));
        let mut both = tats_from(&[tats_of(tats.as_ref()), tats_of(tats.as_ref())].concat());
        let one = call(&one, &mut tats, taking, quantity);
        let twice = call(&twice, &mut both, taking, quantity);
        prop_assert_eq!(one.map(|one| Verdict { quota: Some(1), ..one }), twice);
        prop_assert_eq!(tats_of(both.as_ref()), [tats_of(tats.as_ref()), tats_of(tats.as_ref())].concat());
    }

    #[test]
    fn a_call_and_its_refund_leave_the_tats_as_they_were(
        quotas in quotas(), ahead in ahead(), taking in any_taking(), tokens in 0..1_200_i64,
    ) {
        let part = |index| ahead.get(index).map_or(1, |part: &i64| part.abs().max(1));
        let ahead: Vec<_> = (0..quotas.len()).map(part).collect();
        let (limiter, before, tokens) = case(&quotas, &ahead, Err(tokens));
        let mut tats = before.clone();
        // Skip a case in which a TAT has passed: a refund would not restore that TAT.
        if tats_of(tats.as_ref()).iter().all(|tat| *tat > now())
            && let Ok(verdict) = call(&limiter, &mut tats, taking, tokens) {
            call(&limiter, &mut tats, Taking::AllOrNone, -verdict.taken.cast_signed()).unwrap();
            prop_assert_eq!(tats, before);
        }
    }

    /// Every call that passes all quotas together would also pass each quota alone.
    #[test]
    fn no_quota_lets_through_more_beside_others_than_alone(
        quotas in quotas(), steps in prop::collection::vec((0..300_u64, 0..400_i64), 1..20),
    ) {
        let mut tats = None;
        let mut alone: Vec<Option<Moment>> = vec![None; quotas.len()];
        let mut at = NOW;
        let longest = quotas.iter().map(|quota| stated(*quota).tolerance()).max();
        let least = quotas.iter().map(|quota| quota.limit).min().unwrap_or_default();
        for (pause, tokens) in steps {
            at += u64::try_from(longest.unwrap_or_default()).unwrap_or(0) / 1_000 * pause;
            let quantity = i64::try_from(u128::from(least) * u128::try_from(tokens).unwrap() / 1_000).unwrap();
            let Some(at) = Moment::new(at) else { break };
            let Ok(limiter) = limiter(&quotas, at) else { break };
            let together = call(&limiter, &mut tats, Taking::AllOrNone, quantity).unwrap();
            for (quota, tat) in quotas.iter().zip(&mut alone) {
                let decided = decide(quota.at(at).unwrap(), *tat, Taking::AllOrNone, quantity).unwrap();
                prop_assert!(together.limited || !decided.limited);
                if let (false, model::Change::Store(new)) = (together.limited, decided.change) {
                    *tat = Some(new);
                }
            }
        }
    }
}

/// A call with fewer quotas than the key has TATs leaves the other TATs as they are. In a call with more quotas, the
/// additional quotas start full.
#[test]
fn tats_beyond_the_quotas_of_a_call_stay_as_they_are() {
    let quota = |limit| Quota { limit, ..valid(10) };
    let quotas = [quota(10), quota(20), quota(30)];
    let (three, before, _) = case(&quotas, &[500, 400, 300], Ok(1));
    let (one, _, _) = case(&quotas[..1], &[], Ok(1));
    let mut after = before.clone();
    call(&one, &mut after, Taking::AllOrNone, 1).unwrap();
    let (before, after) = (tats_of(before.as_ref()), tats_of(after.as_ref()));
    assert!(after[0] > before[0]);
    assert_eq!(after[1..], before[1..]);

    let (_, mut more, _) = case(&quotas[..1], &[500], Ok(1));
    call(&three, &mut more, Taking::AllOrNone, 1).unwrap();
    let second = stated(quotas[1]).refill_time(1);
    let more = nanos_of(more.as_ref());
    assert_eq!((more.len(), more[1]), (3, i128::from(NOW) + second));
}

fn valid(limit: u64) -> Quota {
    let [count, period] = [1, 60].map(|number| std::num::NonZero::new(number).unwrap());
    Quota { limit, count, period: Unit::Seconds.in_nanos(period) }
}
