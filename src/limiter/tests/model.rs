//! A second implementation of the rule, to test the module against. The model uses the module's terms, and follows the
//! formulas in docs/design.md with 128-bit integers. The module computes the remaining tokens; the model searches for
//! them. Spans and TATs are in nanoseconds.

/// How a call takes tokens, as in src/limiter.rs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taking {
    AllOrNone,
    Always,
    UpTo,
    Nothing,
}

#[derive(Debug, Clone, Copy)]
pub struct Quota {
    pub max_burst: i128,
    pub count: i128,
    pub period: i128,
}

/// A call, without its quotas.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    pub taking: Taking,
    pub now: i128,
    pub quantity: i128,
}

/// The contents of the reply to a call, according to one quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    pub limited: bool,
    pub taken: i128,
    pub limit: i128,
    pub remaining: i128,
    pub retry_after: Option<i128>,
    pub reset_after: i128,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The verdict of the quota that decides.
    pub verdict: Verdict,
    /// The number of the quota that decides: 1, 2, …
    pub quota: usize,
    pub change: Change,
}

/// A change to the stored state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change<T = Vec<i128>> {
    Nothing,
    Store(T),
    Delete,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    TooFast,
    TooLarge,
    DebtTooLong,
}

const LAST: i128 = i64::MAX as i128;

impl Quota {
    pub fn limit(&self) -> i128 {
        self.max_burst + 1
    }

    /// Returns the time that these tokens take to come back or, if the product overflows, a time that is too long for
    /// any quota.
    pub fn refill_time(&self, tokens: i128) -> i128 {
        tokens.checked_mul(self.period).map_or(i128::MAX / 4, |product| product / self.count)
    }

    pub fn tolerance(&self) -> i128 {
        self.refill_time(self.limit())
    }

    /// Returns an error if the quota is not valid at `now`.
    pub fn at(&self, now: i128) -> Result<(), Error> {
        if self.count > self.period {
            return Err(Error::TooFast);
        }
        if self.limit() > LAST || now + self.tolerance() > LAST {
            return Err(Error::TooLarge);
        }
        Ok(())
    }

    /// Returns the number of tokens that remain when the limiter is `reset_after` away from full. That is the largest
    /// number, up to the limit, that comes back within the tolerance minus `reset_after`. Uses a binary search.
    fn remaining(&self, reset_after: i128) -> i128 {
        let (mut fits, mut fits_not) = (0, self.limit() + 1);
        while fits_not - fits > 1 {
            let middle = (fits + fits_not) / 2;
            if self.refill_time(middle) <= self.tolerance() - reset_after {
                fits = middle;
            } else {
                fits_not = middle;
            }
        }
        fits
    }
}

impl Call {
    /// Decides the call, given the stored TATs. A quota without a TAT is full. An error is returned with the number of
    /// its quota.
    pub fn decide(&self, quotas: &[Quota], tats: &[i128]) -> Result<Decision, (Error, usize)> {
        let &Self { taking, now, quantity } = self;
        let mut stored = tats.to_vec();
        stored.resize(tats.len().max(quotas.len()), now);
        let remaining = quotas.iter().zip(&stored).map(|(quota, tat)| quota.remaining((tat - now).max(0)));
        let tokens = if taking == Taking::UpTo { remaining.fold(quantity, i128::min) } else { quantity };
        let verdicts = quotas
            .iter()
            .zip(&stored)
            .zip(1..)
            .map(|((quota, tat), number)| self.verdict(quota, *tat, tokens).map_err(|error| (error, number)));
        let verdicts = verdicts.collect::<Result<Vec<_>, _>>()?;

        // If quotas tie, the first one decides. The wait of a call that can never pass counts as the longest.
        let limited = taking != Taking::UpTo && verdicts.iter().any(|verdict| verdict.limited);
        let got_fewer = taking == Taking::UpTo && tokens < quantity;
        let wait = |verdict: &Verdict| verdict.retry_after.unwrap_or(i128::MAX);
        let decides = (0..quotas.len()).min_by_key(|index| {
            let verdict = &verdicts[*index];
            if limited {
                (i128::from(!verdict.limited), -wait(verdict))
            } else {
                (verdict.remaining, if got_fewer { -wait(verdict) } else { 0 })
            }
        });
        let verdict = verdicts[decides.unwrap()];

        for (tat, quota) in stored.iter_mut().zip(quotas) {
            *tat = match quantity {
                0.. => (*tat).max(now) + quota.refill_time(verdict.taken),
                _ if *tat > now => (*tat - quota.refill_time(-quantity)).max(now),
                _ => *tat,
            };
        }
        let change = match quantity {
            0.. if verdict.taken > 0 => Change::Store(stored),
            ..0 if !tats.is_empty() && stored.iter().all(|tat| *tat <= now) => Change::Delete,
            ..0 if !stored.starts_with(tats) => Change::Store(stored),
            _ => Change::Nothing,
        };
        Ok(Decision { verdict, quota: decides.unwrap() + 1, change })
    }

    /// Decides the call for one quota. `tokens` is the quantity, capped for `Taking::UpTo` at what the emptiest quota
    /// holds.
    fn verdict(&self, quota: &Quota, tat: i128, tokens: i128) -> Result<Verdict, Error> {
        let &Self { taking, now, quantity } = self;
        let (limit, base) = (quota.limit(), tat.max(now));
        // The time until this many tokens are available. The time is negative if they became available earlier.
        let wait = |tokens| base + quota.refill_time(tokens) - quota.tolerance() - now;
        let (limited, taken, retry_after) = match taking {
            _ if quantity < 0 => (false, 0, None),
            Taking::AllOrNone | Taking::Nothing => {
                let limited = tokens > limit || wait(tokens) > 0;
                let taken = if limited || taking == Taking::Nothing { 0 } else { tokens };
                (limited, taken, (limited && tokens <= limit).then(|| wait(tokens)))
            }
            Taking::Always if base + quota.refill_time(tokens) > LAST => return Err(Error::DebtTooLong),
            Taking::Always => (wait(tokens) > 0, tokens, (wait(tokens) > 0).then(|| wait(tokens))),
            Taking::UpTo => {
                // Each time is rounded separately, so one more token may already be available.
                let one_more = wait(tokens) + quota.refill_time(1);
                (tokens == 0 && quantity > 0, tokens, (tokens < quantity && limit > 0).then(|| one_more.max(0)))
            }
        };
        let reset_after = match quantity {
            0.. => base + quota.refill_time(taken) - now,
            _ => (base - quota.refill_time(-quantity) - now).max(0),
        };
        Ok(Verdict { limited, taken, limit, remaining: quota.remaining(reset_after), retry_after, reset_after })
    }
}
