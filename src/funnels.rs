//! Several quotas of one limiter in one decision: 10 a second and 1,000 a day.
//!
//! Each quota is decided by the rule in `funnel.rs`, on a TAT of its own; the order of the quotas in a call tells which
//! TAT is whose. A call that takes all or none takes from each quota, or from none. A call that takes in any case takes
//! from each. A call that takes as many as there are takes the same number from each: what the emptiest has. A call
//! that gives back gives to each.
//!
//! A call is told the verdict of one quota, the one that **decides**. The first of equals is
//!
//! * of a call that is limited, or in debt: the quota that limits it for the longest time; for ever is longest;
//! * of a call that got fewer tokens than it asked for: the emptiest quota, and among these the one that takes longest
//!   to have one more token;
//! * of any other call: the quota with the fewest tokens remaining.

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

/// The TATs of a limiter's quotas, in order: none for a full limiter, at most `MOST_QUOTAS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tats {
    /// Those beyond `count` are the epoch.
    moments: [Moment; MOST_QUOTAS],
    count: usize,
}

/// A call by several quotas, decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// The verdict of the quota that decides; its `change` is of that quota alone.
    pub verdict: Verdict,
    /// The number of that quota: 1, 2, …
    pub quota: usize,
    /// The change of the stored state.
    pub change: Change<Tats>,
}

impl Funnels {
    #[inline(always)]
    pub fn new(first: Funnel) -> Self {
        Self { first, further: [None; MOST_QUOTAS - 1] }
    }

    /// Puts a quota in its place: 2, 3, … up to `MOST_QUOTAS`.
    #[inline(always)]
    pub fn put(&mut self, number: usize, funnel: Funnel) {
        if let Some(place) = self.further.get_mut(number - 2) {
            *place = Some(funnel);
        }
    }

    fn further(&self) -> impl Iterator<Item = &Funnel> {
        self.further.iter().flatten()
    }

    /// Decides a call of `quantity` tokens on the stored TATs; a quota that has none is full. A negative quantity gives
    /// tokens back, however the call takes.
    ///
    /// Errors: that of the first quota that cannot be decided, and its number.
    #[inline(always)]
    pub fn decide(&self, stored: Tats, taking: Taking, quantity: i64) -> Result<Decision, (Error, usize)> {
        match (taking, u64::try_from(quantity)) {
            (Taking::UpTo, Ok(quantity)) => {
                let part = self.fewest_remaining(&stored).min(quantity);
                self.decide_each(stored, taking, |funnel, tat| Ok(funnel.take_part(tat, quantity, part)))
            }
            _ => self.decide_each(stored, taking, |funnel, tat| funnel.decide(tat, taking, quantity)),
        }
    }

    #[inline(always)]
    fn decide_each(
        &self,
        stored: Tats,
        taking: Taking,
        decide: impl Fn(&Funnel, Option<Moment>) -> Result<Verdict, Error>,
    ) -> Result<Decision, (Error, usize)> {
        let tat = stored.get(0);
        let mut verdict = decide(&self.first, tat).map_err(|error| (error, 1))?;
        let (mut quota, mut most) = (1, strictness(taking, &verdict));
        let mut changing = Changing::new(stored, self.first.now());
        changing.apply(0, tat, verdict.change);
        for (funnel, number) in self.further().zip(2..) {
            let tat = stored.get(number - 1);
            let other = decide(funnel, tat).map_err(|error| (error, number))?;
            changing.apply(number - 1, tat, other.change);
            let strictness = strictness(taking, &other);
            if strictness > most {
                (verdict, quota, most) = (other, number, strictness);
            }
        }
        let none = taking == Taking::AllOrNone && verdict.limited;
        Ok(Decision { verdict, quota, change: if none { Change::Nothing } else { changing.finish() } })
    }

    fn fewest_remaining(&self, stored: &Tats) -> u64 {
        let further = self.further().zip(1..).map(|(funnel, index)| funnel.remaining_now(stored.get(index)));
        further.fold(self.first.remaining_now(stored.get(0)), u64::min)
    }
}

/// Orders the quotas of a call: the strictest decides.
#[inline(always)]
fn strictness(taking: Taking, verdict: &Verdict) -> (bool, u64, u64) {
    let wait = verdict.retry_after.map_or(u64::MAX, Span::nanos);
    let fewest = u64::MAX - verdict.remaining;
    match taking {
        // The wait of a call that got all is the same for each quota.
        Taking::UpTo => (false, fewest, wait),
        _ if verdict.limited => (true, wait, 0),
        _ => (false, fewest, 0),
    }
}

impl Tats {
    /// The TATs of a full limiter.
    pub const NONE: Self = Self { moments: [Moment::EPOCH; MOST_QUOTAS], count: 0 };

    /// The TAT of a quota: the first has index 0.
    #[inline(always)]
    pub fn get(&self, index: usize) -> Option<Moment> {
        if index < self.count { self.moments.get(index).copied() } else { None }
    }

    #[inline(always)]
    pub fn iter(&self) -> impl Iterator<Item = Moment> {
        self.moments.iter().take(self.count).copied()
    }

    /// Puts a TAT behind the others. One more than `MOST_QUOTAS` is left out.
    #[inline(always)]
    pub fn push(&mut self, tat: Moment) {
        self.put(self.count, tat);
    }

    #[inline(always)]
    fn put(&mut self, index: usize, tat: Moment) {
        if let Some(place) = self.moments.get_mut(index) {
            *place = tat;
            self.count = self.count.max(index + 1);
        }
    }

    /// The TATs after a call by one quota, the first.
    pub fn after(&self, change: Change, now: Moment) -> Change<Self> {
        let mut changing = Changing::new(*self, now);
        changing.apply(0, self.get(0), change);
        changing.finish()
    }
}

/// The TATs of a limiter while a call changes them.
struct Changing {
    tats: Tats,
    now: Moment,
    moved: bool,
    full: bool,
}

impl Changing {
    #[inline(always)]
    fn new(stored: Tats, now: Moment) -> Self {
        Self { tats: stored, now, moved: false, full: false }
    }

    /// Changes the stored TAT at this index; all before it have been changed. A quota that does not change keeps its
    /// TAT, or is full from now on if it has none.
    #[inline(always)]
    fn apply(&mut self, index: usize, stored: Option<Moment>, change: Change) {
        let tat = match change {
            Change::Store(tat) => tat,
            Change::Delete => stored.map_or(self.now, |stored| stored.min(self.now)),
            Change::Nothing => stored.unwrap_or(self.now),
        };
        self.moved |= change != Change::Nothing && stored != Some(tat);
        self.full |= change == Change::Delete;
        self.tats.put(index, tat);
    }

    /// The state is deleted once a quota has all its tokens back and all others are full as well.
    #[inline(always)]
    fn finish(self) -> Change<Tats> {
        if self.full && self.tats.iter().all(|tat| tat <= self.now) {
            Change::Delete
        } else if self.moved {
            Change::Store(self.tats)
        } else {
            Change::Nothing
        }
    }
}
