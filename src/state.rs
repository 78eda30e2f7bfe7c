//! A limiter's state: the TAT of each quota as decimal text in a native string, which expires when the limiter is full.

use crate::decimal::{self, MOMENT_DIGITS};
use crate::error::Error;
use crate::funnel::{Moment, Unit};
use crate::limiter::{Change, MOST_QUOTAS, Tats};
use crate::redis::{self, Argument, Context, Key, Value, WritableKey};

/// Opens a limiter's key for reading and writing, whether it exists or not.
///
/// Errors: `Unavailable` if the server does not let the key be written now.
#[inline(always)]
pub fn open<'a>(context: &'a Context, name: &'a Argument) -> Result<WritableKey<'a>, Error> {
    Ok(WritableKey::open(context, name)?)
}

/// Reads the TATs at an open key.
///
/// Errors: `WrongType` and `NotAState` if the key holds anything but TATs; `TooManyQuotas` if it holds more TATs than
/// the caller takes.
#[inline(always)]
pub fn read<const FURTHER: usize>(key: &Key) -> Result<Tats<FURTHER>, Error> {
    parse(key.value())
}

/// Hands `read` the value of a key, which stays as it is, and returns what `read` returns.
///
/// Errors: those of `read`, and `Unavailable` if the server does not let the key be read now.
#[inline(always)]
pub fn peek<T>(context: &Context, name: &Argument, read: impl FnOnce(Value) -> Result<T, Error>) -> Result<T, Error> {
    redis::peek(context, name, read)?
}

/// Reads the TATs in a key's value. Errors: those of `read`.
#[inline(always)]
pub fn parse<const FURTHER: usize>(value: Value) -> Result<Tats<FURTHER>, Error> {
    let mut text = match value {
        Value::Absent => return Ok(Tats::NONE),
        Value::String(text) => text,
        Value::OtherType => return Err(Error::WrongType),
    };
    let mut tats = Tats::NONE;
    if text.is_empty() || text.len() > MOST_QUOTAS * MOMENT_DIGITS {
        return Err(Error::NotAState);
    }
    while let Some((tat, further)) = text.split_first_chunk() {
        tats.add(parse_tat(tat)?)?;
        text = further;
    }
    if text.is_empty() { Ok(tats) } else { Err(Error::NotAState) }
}

#[inline(always)]
fn parse_tat(text: &[u8; MOMENT_DIGITS]) -> Result<Moment, Error> {
    decimal::parse_moment(text).and_then(Moment::new).ok_or(Error::NotAState)
}

/// Stores what a decision has changed, and closes the key. The key expires at the last TAT, rounded up to a whole
/// millisecond.
///
/// Errors: `Unavailable` if the server does not let the key be written now.
#[inline(always)]
pub fn write<const FURTHER: usize>(key: WritableKey, change: &Change<FURTHER>) -> Result<(), Error> {
    match change {
        Change::Nothing => (),
        Change::Store(tats) => {
            let text = |tat: Moment| decimal::format(tat.nanos());
            let expiry = tats.last().since_epoch().round_up(Unit::Milliseconds);
            key.set(text(tats.first()), tats.further().map(text), expiry)?;
        }
        Change::Delete => key.delete(),
    }
    Ok(())
}
