//! A second statement of the rule, with which the tests compare the module. It follows the formulas of docs/design.md,
//! in 128 bits, and searches where the module computes. Spans and moments are in nanoseconds.
//!
//! The names differ from the module's on purpose: `Way` is its `Taking`, `Asked` a `Quota` with the rest of a call,
//! `Told` a `Verdict`, `Joint` a `Decision`, `Refused` an `Error`, `told_together` is `Limiter::decide`.

/// The way in which tokens are taken: that of CL.THROTTLE and its variants, of CL.CHARGE, or of CL.TAKE. CL.LOOK takes
/// none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Throttle,
    Charge,
    Take,
    Look,
}

/// One quota's part of a call, and the moment of the call.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    pub way: Way,
    pub now: i128,
    pub max_burst: i128,
    pub count: i128,
    pub period: i128,
    pub quantity: i128,
}

/// The decision on one quota, and the change of its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    pub limited: bool,
    pub taken: i128,
    pub limit: i128,
    pub remaining: i128,
    pub retry_after: Option<i128>,
    pub reset_after: i128,
    pub change: Change,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change<T = i128> {
    Nothing,
    Store(T),
    Delete,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    TooFast,
    TooLarge,
    DebtTooLong,
}

const LAST: i128 = i64::MAX as i128;

impl Asked {
    pub fn limit(&self) -> i128 {
        self.max_burst + 1
    }

    /// Returns the time in which these tokens come back. A time beyond 128 bits is replaced by one that is longer than
    /// any valid span.
    pub fn span(&self, tokens: i128) -> i128 {
        tokens.checked_mul(self.period).map_or(i128::MAX / 4, |product| product / self.count)
    }

    /// Returns an error if no limiter can have this quota.
    pub fn possible(&self) -> Result<(), Refused> {
        if self.count > self.period {
            return Err(Refused::TooFast);
        }
        if self.limit() > LAST || self.now + self.span(self.limit()) > LAST {
            return Err(Refused::TooLarge);
        }
        Ok(())
    }

    /// Decides the call on this state; `None` is a full limiter.
    pub fn told(&self, tat: Option<i128>) -> Result<Told, Refused> {
        self.possible()?;
        let tolerance = self.span(self.limit());
        let base = tat.map_or(self.now, |tat| tat.max(self.now));
        if self.quantity < 0 {
            // A call that gives tokens back is never limited, and the limiter never holds more than its limit.
            let new_tat = base - self.span(-self.quantity);
            let reset_after = (new_tat - self.now).max(0);
            return Ok(Told {
                limited: false,
                taken: 0,
                limit: self.limit(),
                remaining: self.most_tokens_within(tolerance - reset_after),
                retry_after: None,
                reset_after,
                change: match tat {
                    _ if new_tat > self.now => Change::Store(new_tat),
                    Some(_) => Change::Delete,
                    None => Change::Nothing,
                },
            });
        }
        let passes = |tokens| tokens <= self.limit() && base + self.span(tokens) - tolerance <= self.now;
        let taken = match self.way {
            Way::Look => 0,
            Way::Throttle if !passes(self.quantity) => 0,
            Way::Throttle | Way::Charge => self.quantity,
            Way::Take => self.quantity.min(self.most_tokens_within(tolerance - (base - self.now))),
        };
        let new_tat = base + self.span(taken);
        if new_tat > LAST {
            return Err(Refused::DebtTooLong);
        }
        // The moment at which the limiter holds enough tokens for the call.
        let (limited, there_at) = match self.way {
            Way::Throttle | Way::Look => (!passes(self.quantity), base + self.span(self.quantity) - tolerance),
            Way::Charge => (new_tat - tolerance > self.now, new_tat - tolerance),
            Way::Take => (taken == 0 && self.quantity > 0, new_tat + self.span(1) - tolerance),
        };
        let waits = match self.way {
            Way::Throttle | Way::Look => limited && self.quantity <= self.limit(),
            Way::Charge => limited,
            Way::Take => taken < self.quantity && self.limit() > 0,
        };
        let reset_after = new_tat - self.now;
        Ok(Told {
            limited,
            taken,
            limit: self.limit(),
            remaining: self.most_tokens_within(tolerance - reset_after),
            retry_after: waits.then_some((there_at - self.now).max(0)),
            reset_after,
            change: if taken > 0 { Change::Store(new_tat) } else { Change::Nothing },
        })
    }

    /// Returns the largest number of tokens, at most the limit, that come back within `span`; it searches by halving.
    fn most_tokens_within(&self, span: i128) -> i128 {
        let (mut fits, mut fits_not) = (0, self.limit() + 1);
        while fits_not - fits > 1 {
            let middle = (fits + fits_not) / 2;
            if self.span(middle) <= span {
                fits = middle;
            } else {
                fits_not = middle;
            }
        }
        fits
    }
}

/// The decision on several quotas of one key, and the change of their state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joint {
    /// The decision of the quota that decides. Its `change` means nothing.
    pub told: Told,
    /// The number of that quota: 1, 2, …
    pub quota: usize,
    pub change: Change<Vec<i128>>,
}

/// Decides a call with these quotas on these TATs, by asking each quota alone. An error comes with its quota's number.
pub fn told_together(asked: &[Asked], tats: &[i128]) -> Result<Joint, (Refused, usize)> {
    let Asked { way, now, quantity, .. } = asked[0];
    let stored = |index: usize| tats.get(index).copied();
    let each = |quantity: i128| -> Result<Vec<Told>, (Refused, usize)> {
        let asked = asked.iter().enumerate().map(|(index, asked)| (Asked { quantity, ..*asked }, index));
        asked.map(|(asked, index)| asked.told(stored(index)).map_err(|refused| (refused, index + 1))).collect()
    };
    let mut told = each(quantity)?;
    let part = way == Way::Take && quantity >= 0;
    if part {
        let taken = each(0)?.iter().map(|told| told.remaining).fold(quantity, i128::min);
        told = each(taken)?;
        for (told, asked) in told.iter_mut().zip(asked).filter(|_| taken < quantity) {
            told.limited = taken == 0;
            let one_more = told.reset_after + asked.span(1) - asked.span(asked.limit());
            told.retry_after = (asked.limit() > 0).then_some(one_more.max(0));
        }
    }
    let limited = !part && told.iter().any(|told| told.limited);
    let fewest = told.iter().map(|told| told.remaining).min();
    let decides = |told: &Told| if limited { told.limited } else { Some(told.remaining) == fewest };
    let waits = limited || part;
    let wait = |told: &Told| if waits { told.retry_after.unwrap_or(i128::MAX) } else { 0 };
    let longest = told.iter().filter(|told| decides(told)).map(wait).max();
    let index = told.iter().position(|told| decides(told) && Some(wait(told)) == longest).unwrap();

    let taken = told[index].taken;
    let mut left: Vec<i128> = tats.to_vec();
    left.resize(tats.len().max(asked.len()), now);
    for (tat, asked) in left.iter_mut().zip(asked) {
        *tat = match quantity {
            0.. => (*tat).max(now) + asked.span(taken),
            _ if *tat > now => (*tat - asked.span(-quantity)).max(now),
            _ => *tat,
        };
    }
    let change = if quantity < 0 && tats.is_empty() {
        Change::Nothing
    } else if quantity < 0 && left.iter().all(|tat| *tat <= now) {
        Change::Delete
    } else if taken > 0 || (quantity < 0 && left[..tats.len()] != *tats) {
        Change::Store(left)
    } else {
        Change::Nothing
    };
    Ok(Joint { told: told[index], quota: index + 1, change })
}
