//! A limiter's state: the TAT as decimal text in a native string, which expires when the funnel is empty.

use crate::decimal::{self, Decimal};
use crate::error::Error;
use crate::funnel::Nanos;
use crate::redis::{Argument, Context, Key, Value};

/// A limiter's key, open for the length of a call.
pub struct State<'a> {
    key: Key<'a>,
    /// The stored TAT; none if there is no key.
    pub tat: Option<Nanos>,
}

impl<'a> State<'a> {
    /// Errors: `WrongType` and `NotAState` if the key holds anything but a TAT.
    // As for `Request::parse`.
    #[inline(always)]
    pub fn open(context: &'a Context, name: &'a Argument) -> Result<Self, Error> {
        let key = context.open_key(name);
        let tat = match key.value() {
            Value::Nothing => None,
            Value::String(text) => Some(decimal::parse(text).map(Nanos).ok_or(Error::NotAState)?),
            Value::OtherType => return Err(Error::WrongType),
        };
        Ok(Self { key, tat })
    }

    /// Stores the TAT until it has passed: the key expires at the first whole millisecond that is not before it.
    #[inline(always)]
    pub fn store(&mut self, tat: Nanos) {
        let expire_at = tat.round_up(Nanos::PER_MILLISECOND);
        self.key.set(Decimal::new(tat.0).as_bytes(), expire_at);
    }
}
