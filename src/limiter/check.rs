//! The check of one input of the fuzzer. It compares the rule with its second statement, `model.rs`, and the module's
//! numbers as text with the standard library's.
//!
//! cargo-fuzz runs it on new inputs, `cargo test` on those kept in corpus/core.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::indexing_slicing,
    reason = "it fails by panicking"
)]

use std::num::NonZero;
use std::ops::Deref;

use super::model::{Asked, Change, Refused, Told, Way};
use crate::decimal;
use crate::funnel::{Error, Funnel, Moment, Quota, Span, Taking, Unit};
use crate::limiter::{self, Limiter, Tats, Verdict};

pub fn check(bytes: &[u8]) {
    let mut input = Input(bytes);
    let flags = input.byte();
    let now = input.moment();
    let tat = match flags % 4 {
        0 => None,
        1 => Some(input.moment()),
        2 => Some(now.saturating_add(input.moment()).min(i64::MAX as u64)),
        _ => Some(now.saturating_sub(input.moment())),
    };
    let (unit, nanos) = units()[usize::from(flags / 4 % 2)];
    let [limit, count, period, quantity] = [(); 4].map(|()| input.integer());
    if let (Some(count), Some(period)) = (NonZero::new(count), NonZero::new(period)) {
        let (taking, _) = takings()[usize::from(flags / 8 % 4)];
        rule(Quota { limit, count, period, unit }, now, tat, taking, quantity as i64);
    }
    let span = moment(quantity >> 1).since_epoch();
    assert_eq!(i128::from(span.round_up(unit)), (i128::from(span.0) + nanos - 1) / nanos);
    assert_eq!(decimal::format(quantity >> 1).as_slice(), format!("{:019}", quantity >> 1).as_bytes());
    let text_of = decimal::format(quantity >> 1);
    assert_eq!(decimal::without_zeros(&text_of), (quantity >> 1).to_string().as_bytes());
    text(input.0);
    let same_wrong_byte = |byte| {
        // The parser checks blocks of digits: two equal wrong bytes must not cancel out.
        let mut text = *b"1111111111111111111";
        (text[0], text[8]) = (byte, byte);
        text
    };
    text(&same_wrong_byte(flags));
    let digits: Vec<u8> = input.0.iter().map(|byte| b'0' + byte % 10).collect();
    text(&digits);
}

/// Returns the units of time, each with its nanoseconds.
pub fn units() -> [(Unit, i128); 2] {
    [(Unit::Seconds, 1_000_000_000), (Unit::Milliseconds, 1_000_000)]
}

pub fn takings() -> [(Taking, Way); 4] {
    [
        (Taking::AllOrNone, Way::Throttle),
        (Taking::InAnyCase, Way::Charge),
        (Taking::UpTo, Way::Take),
        (Taking::Nothing, Way::Look),
    ]
}

pub fn moment(nanos: u64) -> Moment {
    Moment::new(nanos).unwrap()
}

fn rule(quota: Quota, now: u64, tat: Option<u64>, taking: Taking, quantity: i64) {
    let expected = asked(quota, now, taking, quantity).told(tat.map(i128::from)).map_err(refused);
    let decided = quota.at(moment(now)).and_then(|funnel| funnel.decide(tat.map(moment), taking, quantity));
    assert_eq!(decided.map(told), expected, "{taking:?} {quantity} of {quota:?} at {now} on {tat:?}");
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

impl Funnel {
    /// Decides a call on a limiter that has only this quota.
    pub fn decide(&self, tat: Option<Moment>, taking: Taking, quantity: i64) -> Result<Decided, Error> {
        let tats = tat.map(|first| Tats { first, further: Vec::new() });
        let limiter = Limiter { first: *self, further: Vec::new() };
        let decision = limiter.decide(tats, taking, quantity).map_err(|(error, _)| error)?;
        let change = match decision.change {
            limiter::Change::Nothing => Change::Nothing,
            limiter::Change::Store(tats) => Change::Store(tats.first),
            limiter::Change::Delete => Change::Delete,
        };
        Ok(Decided { verdict: decision.verdict, change })
    }
}

/// Returns the call as the model takes it.
pub fn asked(quota: Quota, now: u64, taking: Taking, quantity: i64) -> Asked {
    let (_, way) = takings().into_iter().find(|(other, _)| *other == taking).unwrap();
    let (_, nanos) = units().into_iter().find(|(unit, _)| *unit == quota.unit).unwrap();
    Asked {
        way,
        now: now.into(),
        max_burst: i128::from(quota.limit) - 1,
        count: quota.count.get().into(),
        period: i128::from(quota.period.get()) * nanos,
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
        Change::Store(tat) => Change::Store(tat.nanos().into()),
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

fn text(bytes: &[u8]) {
    let expected = std::str::from_utf8(bytes)
        .ok()
        .filter(|text| (1..=30).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit()))
        .and_then(|text| text.parse::<i64>().ok())
        .map(|number| number as u64);
    let digits = bytes.len() == 19 && bytes.iter().all(u8::is_ascii_digit);
    let state = digits.then(|| std::str::from_utf8(bytes).unwrap().parse().unwrap());
    assert_eq!(decimal::parse_moment(bytes), state, "{}", bytes.escape_ascii());
    let short = expected.filter(|_| bytes.len() <= 8 && (bytes[0] != b'0' || bytes.len() == 1));
    let parsed = decimal::parse_small(bytes).map(u64::from);
    assert_eq!(parsed, short, "{}", bytes.escape_ascii());
}

/// Bytes from which integers are read, front first. Once the bytes are used up, zeros follow.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    /// Takes an integer. Its first byte tells how many follow, so that small integers are as likely as large ones.
    fn integer(&mut self) -> u64 {
        let length = self.byte() % 9;
        (0..length).fold(0, |integer, _| integer << 8 | u64::from(self.byte()))
    }

    fn moment(&mut self) -> u64 {
        self.integer() >> 1
    }
}

#[cfg(test)]
#[test]
fn the_rule_holds_on_the_corpus_of_the_fuzzer() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fuzz/corpus/core");
    let inputs: Vec<_> = std::fs::read_dir(corpus).unwrap().collect();
    assert!(inputs.len() > 50, "only {} inputs", inputs.len());
    // Miri takes thousands of times as long.
    for input in inputs.into_iter().step_by(if cfg!(miri) { 8 } else { 1 }) {
        check(&std::fs::read(input.unwrap().path()).unwrap());
    }
}
