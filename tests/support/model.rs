//! The rule a second time, to hold the module against: written down as README states it, in 128 bits, and searching
//! where the module computes. Spans and moments are nanoseconds.

/// How tokens are taken: by CL.THROTTLE and its like, by CL.CHARGE, by CL.TAKE, or not at all, by CL.LOOK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Throttle,
    Charge,
    Take,
    Look,
}

/// What a caller asks, and when.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    pub way: Way,
    pub now: i128,
    pub max_burst: i128,
    pub count: i128,
    pub period: i128,
    pub quantity: i128,
}

/// What it has to be told, and the state that has to be left behind, if it changes.
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
pub enum Change {
    Nothing,
    Store(i128),
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

    /// The time in which these tokens come back. What does not fit in 128 bits is longer than any span that counts.
    pub fn span(&self, tokens: i128) -> i128 {
        tokens.checked_mul(self.period).map_or(i128::MAX / 4, |product| product / self.count)
    }

    /// Whether there is such a limiter at all.
    pub fn limiter(&self) -> Result<(), Refused> {
        if self.count > self.period {
            return Err(Refused::TooFast);
        }
        if self.limit() > LAST || self.now + self.span(self.limit()) > LAST {
            return Err(Refused::TooLarge);
        }
        Ok(())
    }

    /// What a caller is told who finds this state; none is a full limiter.
    pub fn told(&self, tat: Option<i128>) -> Result<Told, Refused> {
        self.limiter()?;
        let tolerance = self.span(self.limit());
        let base = tat.map_or(self.now, |tat| tat.max(self.now));
        if self.quantity < 0 {
            // Tokens that are given back are never refused, and never make more than a full limiter.
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
        // The moment from which the tokens are there that the call waits for.
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

    /// The largest number of tokens, at most the limit, that come back within `span`, found by halving.
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
