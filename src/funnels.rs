//! Several quotas of one limiter in one decision: 10 a second and 1,000 a day.
//!
//! The rule in `funnel.rs` decides for each quota, on a TAT of its own. The first TAT is for the call's first quota,
//! and so on. A call that takes all or none takes from each quota, or from none. A charge takes from each quota, into
//! debt if necessary. A call that takes as many tokens as there are takes the same number from each quota: as many as
//! the emptiest one has. A call that gives back gives to each.
//!
//! The reply is the verdict of one quota, the one that **decides**. If several quotas fit, the first of them decides:
//!
//! * if the call is limited, or leaves a debt: the quota whose wait is the longest; a wait without end is longest;
//! * if a call for as many tokens as there are got fewer than its quantity: of the quotas that are now empty, the one
//!   that takes longest to have one more token;
//! * otherwise: the quota with the fewest tokens remaining.

#![allow(clippy::arithmetic_side_effects, reason = "counts of at most MOST_QUOTAS, and a limiter's tokens")]

use crate::funnel::{Change, Error, Funnel, Moment, Span, Taking, Verdict};

#[cfg(test)]
mod properties;

/// The most quotas that a limiter may have.
pub const MOST_QUOTAS: usize = 8;

/// The quotas of a limiter at one moment: 1 to `MOST_QUOTAS`.
pub struct Funnels {
    first: Funnel,
    further: [Option<Funnel>; MOST_QUOTAS - 1],
}

/// The TATs of a limiter's quotas, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tats {
    /// A moment beyond `count` is not after the moment of a call: its quota is full. After a refused call, the moments
    /// mean nothing.
    moments: [Moment; MOST_QUOTAS],
    /// The number of TATs in the state: 0 for a full limiter, at most `MOST_QUOTAS`.
    count: usize,
}

/// A call by several quotas, decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// The verdict of the quota that decides. Its change is the change of the whole state; it stores the last TAT.
    pub verdict: Verdict,
    /// The number of that quota: 1, 2, … A `u16` becomes any larger type without a check.
    pub quota: u16,
}

impl Funnels {
    #[inline(always)]
    pub fn new(first: Funnel) -> Self {
        Self { first, further: [None; MOST_QUOTAS - 1] }
    }

    /// Returns the places of the second and later quotas, which are empty at first.
    #[inline(always)]
    pub fn further_mut(&mut self) -> impl Iterator<Item = &mut Option<Funnel>> {
        self.further.iter_mut()
    }

    #[inline(always)]
    fn further(&self) -> impl Iterator<Item = &Funnel> {
        self.further.iter().map_while(Option::as_ref)
    }

    /// Decides a call of `quantity` tokens on the stored TATs. If the decision's change stores, `tats` then holds the
    /// new TATs; if not, do not use it again. A negative quantity gives tokens back, whatever `taking` is.
    ///
    /// Errors: the error of the first quota that cannot be decided, and its number.
    #[inline(always)]
    pub fn decide(&self, tats: &mut Tats, taking: Taking, quantity: i64) -> Result<Decision, (Error, u16)> {
        match (taking, u64::try_from(quantity)) {
            (Taking::AllOrNone, Ok(quantity)) => Ok(self.throttle(tats, quantity)),
            _ => self.decide_each(tats, taking, quantity),
        }
    }

    /// Takes all tokens from each quota, or none from any.
    ///
    /// The first loop asks each quota, and takes from those that allow the call; if another refuses, the TATs are not
    /// used again. The second loop counts the tokens that remain. `decide_each` would do the same, but makes a verdict
    /// for each quota.
    #[inline(always)]
    fn throttle(&self, tats: &mut Tats, quantity: u64) -> Decision {
        let [first, further @ ..] = &mut tats.moments;
        let (mut longest, until_full) = take_or_wait(&self.first, first, quantity);
        let mut refusing = (&self.first, until_full, 1);
        for ((funnel, tat), number) in self.further().zip(further).zip(2..) {
            let (wait, until_full) = take_or_wait(funnel, tat, quantity);
            if wait > longest {
                (longest, refusing) = (wait, (funnel, until_full, number));
            }
        }
        if longest > 0 {
            let (funnel, until_full, quota) = refusing;
            let wait = (longest < FOR_EVER).then_some(Span::from_nanos(longest));
            return Decision { verdict: funnel.limit_call(until_full, quantity, wait), quota };
        }
        let [first, further @ ..] = &tats.moments;
        let mut verdict = self.first.grant(quantity, self.first.until_full(Some(*first)));
        let (mut quota, mut count) = (1, 1);
        for ((funnel, tat), number) in self.further().zip(further).zip(2..) {
            let full_after = funnel.until_full(Some(*tat));
            let remaining = funnel.remaining(full_after);
            if remaining < verdict.remaining {
                (verdict, quota) = (funnel.grant_leaving(remaining, quantity, full_after), number);
            }
            count = number;
        }
        tats.count = tats.count.max(usize::from(count));
        verdict.change = tats.change(quantity > 0, false, self.first.now());
        Decision { verdict, quota }
    }

    /// Makes the verdict of each quota, and returns that of the quota that decides.
    #[inline(always)]
    fn decide_each(&self, tats: &mut Tats, taking: Taking, quantity: i64) -> Result<Decision, (Error, u16)> {
        let part = if taking == Taking::UpTo { self.fewest_remaining(tats) } else { 0 };
        let now = self.first.now();
        let gives_back = quantity < 0 && tats.count > 0;
        if gives_back {
            // If the call stores, each quota gets a TAT, even one that had none and is full.
            tats.moments.iter_mut().skip(tats.count).for_each(|tat| *tat = now);
        }
        let [first, further @ ..] = &mut tats.moments;

        let mut verdict = decide_one(&self.first, *first, taking, quantity, part).map_err(|error| (error, 1))?;
        let (mut quota, mut count) = (1, 1);
        let mut moved = change_one(first, verdict.change, now);
        for ((funnel, tat), number) in self.further().zip(further).zip(2..) {
            let other = decide_one(funnel, *tat, taking, quantity, part).map_err(|error| (error, number))?;
            moved |= change_one(tat, other.change, now);
            if is_stricter(taking, &other, &verdict) {
                (verdict, quota) = (other, number);
            }
            count = number;
        }
        tats.count = tats.count.max(usize::from(count));
        verdict.change = tats.change(moved, gives_back, now);
        Ok(Decision { verdict, quota })
    }

    fn fewest_remaining(&self, tats: &Tats) -> u64 {
        let remaining = |funnel: &Funnel, tat| funnel.remaining(funnel.until_full(Some(tat)));
        let [first, further @ ..] = &tats.moments;
        let further = self.further().zip(further).map(|(funnel, tat)| remaining(funnel, *tat));
        further.fold(remaining(&self.first, *first), u64::min)
    }
}

/// Takes all tokens from one quota, or none. Returns the length of the wait for them, which is 0 if they are taken, and
/// the time until the quota was full before the call.
#[inline(always)]
fn take_or_wait(funnel: &Funnel, tat: &mut Moment, quantity: u64) -> (u64, Span) {
    let until_full = funnel.until_full(Some(*tat));
    match funnel.admit(until_full, quantity) {
        Ok(full_after) => {
            *tat = funnel.tat(full_after);
            (0, until_full)
        }
        Err(wait) => (length(wait), until_full),
    }
}

/// Decides the call for one quota. A call that takes as many as there are gets at most `part`, which each quota has.
#[inline(always)]
fn decide_one(funnel: &Funnel, tat: Moment, taking: Taking, quantity: i64, part: u64) -> Result<Verdict, Error> {
    match (taking, u64::try_from(quantity)) {
        (Taking::UpTo, Ok(quantity)) => Ok(funnel.take_part(Some(tat), quantity, part.min(quantity))),
        _ => funnel.decide(Some(tat), taking, quantity),
    }
}

/// Changes a quota's TAT, and returns whether the TAT is another one now.
#[inline(always)]
fn change_one(tat: &mut Moment, change: Change, now: Moment) -> bool {
    let before = *tat;
    match change {
        Change::Nothing => (),
        Change::Store(new) => *tat = new,
        Change::Delete => *tat = before.min(now),
    }
    *tat != before
}

/// Tells whether the later of two quotas decides. If they are equal, the earlier one does.
#[inline(always)]
fn is_stricter(taking: Taking, later: &Verdict, earlier: &Verdict) -> bool {
    let waits_longer = || length(later.retry_after) > length(earlier.retry_after);
    match (taking, later.limited, earlier.limited) {
        // If the call got all, no quota has a wait, so the lengths are equal.
        (Taking::UpTo, ..) if later.remaining == earlier.remaining => waits_longer(),
        (Taking::UpTo, ..) | (_, false, false) => later.remaining < earlier.remaining,
        (_, true, true) => waits_longer(),
        (_, limited, _) => limited,
    }
}

/// The length of a wait without end. Every other wait is below 2^63 ns, as all moments are.
const FOR_EVER: u64 = u64::MAX;

#[inline(always)]
fn length(wait: Option<Span>) -> u64 {
    wait.map_or(FOR_EVER, Span::nanos)
}

impl Tats {
    /// The TATs of a full limiter.
    pub const NONE: Self = Self { moments: [Moment::EPOCH; MOST_QUOTAS], count: 0 };

    /// Returns the TAT of the first quota.
    #[inline(always)]
    pub fn first(&self) -> Moment {
        let [first, ..] = self.moments;
        first
    }

    #[inline(always)]
    pub fn count(&self) -> usize {
        self.count
    }

    #[inline(always)]
    pub fn iter(&self) -> impl Iterator<Item = Moment> {
        self.moments.iter().take(self.count).copied()
    }

    /// Takes over the TATs of a state. Returns `None` if they are not 1 to `MOST_QUOTAS`, or if one of them is `None`.
    #[inline(always)]
    pub fn fill(&mut self, tats: impl ExactSizeIterator<Item = Option<Moment>>) -> Option<()> {
        if !(1..=MOST_QUOTAS).contains(&tats.len()) {
            return None;
        }
        self.count = tats.len();
        for (tat, place) in tats.zip(&mut self.moments) {
            *place = tat?;
        }
        Some(())
    }

    /// Changes the first TAT, as a call by one quota does, and returns the change of the state.
    pub fn change_first(&mut self, change: Change, now: Moment) -> Change {
        let [first, ..] = &mut self.moments;
        let moved = change_one(first, change, now);
        self.change(moved, change == Change::Delete, now)
    }

    /// Returns the change of the state. A call that gives back deletes the state if all quotas are full then.
    #[inline(always)]
    fn change(&self, moved: bool, gives_back: bool, now: Moment) -> Change {
        let last = self.iter().fold(Moment::EPOCH, Moment::max);
        if gives_back && last <= now {
            Change::Delete
        } else if moved {
            Change::Store(last)
        } else {
            Change::Nothing
        }
    }
}
