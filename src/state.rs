//! A limiter's state: one decimal timestamp (TAT) per quota, in a native string that expires when the limiter is full.

use crate::decimal::{self, MOMENT_DIGITS};
use crate::error::Error;
use crate::funnel::{Moment, Unit};
use crate::limiter::{Change, MAX_QUOTAS, Tats};
use crate::redis::{self, Argument, Context, Key, Unavailable, Value};

/// Opens a limiter's key for reading and writing, whether or not the key exists.
///
/// Errors: `Unavailable` if the server does not allow writes to the key now.
#[inline(always)]
pub fn open<'a>(context: &'a mut Context, name: &'a Argument) -> Result<Key<'a>, Error> {
    Ok(Key::open(context, name)?)
}

/// Reads the TATs from an open key. Returns `None` if the key does not exist, in which case the limiter is full.
///
/// Errors: `WrongType` or `NotAState` if the key holds anything other than TATs.
#[inline(always)]
pub fn read(key: &Key) -> Result<Option<Tats>, Error> {
    parse(key.value())
}

/// Reads the TATs from a key without changing the key.
///
/// Errors: those of `read`, and `Unavailable` if the server does not allow the key to be read now.
#[inline(always)]
pub fn look(context: &mut Context, name: &Argument) -> Result<Option<Tats>, Error> {
    redis::look(context, name, parse)?
}

#[inline(always)]
fn parse(value: Value) -> Result<Option<Tats>, Error> {
    let text = match value {
        Value::Absent => return Ok(None),
        Value::String(text) => text,
        Value::OtherType => return Err(Error::WrongType),
    };
    let (first, rest) = text.split_first_chunk().ok_or(Error::NotAState)?;
    let first = parse_tat(first)?;
    let rest = if rest.is_empty() { Vec::new() } else { parse_rest(rest)? };
    Ok(Some(Tats { first, rest }))
}

fn parse_rest(text: &[u8]) -> Result<Vec<Moment>, Error> {
    match text.as_chunks() {
        (rest, []) if rest.len() < MAX_QUOTAS => rest.iter().map(parse_tat).collect(),
        _ => Err(Error::NotAState),
    }
}

#[inline(always)]
fn parse_tat(text: &[u8; MOMENT_DIGITS]) -> Result<Moment, Error> {
    decimal::parse_moment(text).and_then(Moment::new).ok_or(Error::NotAState)
}

/// Applies a decision's change to the key, and closes the key. A stored key expires at the latest TAT, rounded up to a
/// whole millisecond.
///
/// Errors: `Unavailable` if the server does not allow writes to the key now.
#[inline(always)]
pub fn write(key: Key, change: &Change) -> Result<(), Error> {
    match change {
        Change::Nothing => (),
        Change::Store(tats) => {
            let mut text = [0; MAX_QUOTAS * MOMENT_DIGITS];
            let (slots, _) = text.as_chunks_mut::<MOMENT_DIGITS>();
            for (slot, tat) in slots.iter_mut().zip(tats.iter()) {
                *slot = decimal::format(tat.since_epoch().0);
            }
            let length = tats.rest.len().saturating_add(1).saturating_mul(MOMENT_DIGITS);
            let expire_at = tats.last().since_epoch().round_up(Unit::Milliseconds);
            key.set(text.get(..length).unwrap_or_default(), expire_at)?;
        }
        Change::Delete => key.delete(),
    }
    Ok(())
}

impl From<Unavailable> for Error {
    fn from(_: Unavailable) -> Self {
        Self::Unavailable
    }
}
