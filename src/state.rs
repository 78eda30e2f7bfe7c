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

/// Reads the TATs at an open key; `None` if it has more of them than the caller has room for.
///
/// Errors: `WrongType` and `NotAState` if the key holds anything but TATs.
#[inline(always)]
pub fn read<const FURTHER: usize>(key: &Key) -> Result<Option<Tats<FURTHER>>, Error> {
    parse(key.value())
}

/// Reads all TATs at an open key. Errors: those of `read`.
#[inline(always)]
pub fn read_all(key: &Key) -> Result<Tats<{ MOST_QUOTAS - 1 }>, Error> {
    read(key)?.ok_or(Error::NotAState)
}

/// Hands `read` the value of a key, which stays as it is, and returns what `read` returns.
///
/// Errors: those of `read`, and `Unavailable` if the server does not let the key be read now.
#[inline(always)]
pub fn peek<T>(context: &Context, name: &Argument, read: impl FnOnce(Value) -> Result<T, Error>) -> Result<T, Error> {
    redis::peek(context, name, read)?
}

/// Reads the TATs in a key's value; `None` if it has more of them than the caller has room for. Errors: those of
/// `read`.
#[inline(always)]
pub fn parse<const FURTHER: usize>(value: Value) -> Result<Option<Tats<FURTHER>>, Error> {
    let mut text = match value {
        Value::Absent => return Ok(Some(Tats::NONE)),
        Value::String(text) => text,
        Value::OtherType => return Err(Error::WrongType),
    };
    let mut tats = Tats::NONE;
    loop {
        let (tat, further) = text.split_first_chunk().ok_or(Error::NotAState)?;
        if tats.add(parse_tat(tat)?).is_err() {
            return Ok(None);
        }
        if further.is_empty() {
            return Ok(Some(tats));
        }
        text = further;
    }
}

/// Reads all TATs in a key's value: no state has more than there may be quotas. Errors: those of `read`.
pub fn parse_all(value: Value) -> Result<Tats<{ MOST_QUOTAS - 1 }>, Error> {
    parse(value)?.ok_or(Error::NotAState)
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
