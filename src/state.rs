//! A limiter's state: the TAT as decimal text in a native string, which expires when the funnel is empty.

use std::io::Write;

use crate::error::Error;
use crate::funnel::Nanos;
use crate::redis::{Argument, Context, Key, Value};

/// The digits of 2^63 - 1.
const MAX_DIGITS: usize = 19;

/// A limiter's key, open for the length of a call.
pub struct State<'a> {
    key: Key<'a>,
    /// The stored TAT; none if there is no key.
    pub tat: Option<Nanos>,
}

impl<'a> State<'a> {
    /// Errors: `WrongType` and `NotAState` if the key holds anything but a TAT.
    pub fn open(context: &'a Context, name: &'a Argument) -> Result<Self, Error> {
        let key = context.open_key(name);
        let tat = match key.value() {
            Value::Nothing => None,
            Value::String(text) => Some(parse(text).ok_or(Error::NotAState)?),
            Value::OtherType => return Err(Error::WrongType),
        };
        Ok(Self { key, tat })
    }

    /// Stores the TAT until it has passed: the key expires at the first whole millisecond that is not before it.
    pub fn store(&mut self, tat: Nanos) {
        let mut text = [0; MAX_DIGITS];
        let mut rest = text.as_mut_slice();
        let _ = write!(rest, "{}", tat.0);
        let unused = rest.len();
        let length = MAX_DIGITS.saturating_sub(unused);
        self.key.set(
            text.get(..length).unwrap_or_default(),
            tat.round_up(Nanos::PER_MILLISECOND).cast_signed(),
        );
    }
}

/// 1 to 19 digits, no sign and no space, that fit in 63 bits.
fn parse(text: &[u8]) -> Option<Nanos> {
    if text.is_empty() || text.len() > MAX_DIGITS {
        return None;
    }
    let mut tat: u64 = 0;
    for &byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        // 19 digits fit in 64 bits.
        tat = tat.wrapping_mul(10).wrapping_add(digit.into());
    }
    i64::try_from(tat).ok().map(|_| Nanos(tat))
}
