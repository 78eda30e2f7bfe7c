//! A limiter's state: the TAT of each quota as decimal text in a native string, which expires when the limiter is full.

use crate::decimal::{self, MOMENT_DIGITS};
use crate::error::Error;
use crate::funnel::{Change, Moment, Unit};
use crate::funnels::Tats;
use crate::redis::{self, Argument, Context, Key, NotWritable, Value, WritableKey, delete_expired};

/// The state that a key holds.
pub enum Stored {
    /// There is no key: the limiter is full.
    Absent,
    One(Moment),
    /// The TATs of two or more quotas.
    Several(Tats),
}

impl Stored {
    /// The TAT of the first quota.
    #[inline(always)]
    pub fn first(&self) -> Option<Moment> {
        match self {
            Self::Absent => None,
            Self::One(tat) => Some(*tat),
            Self::Several(tats) => Some(tats.first()),
        }
    }
}

/// Opens a limiter's key for reading and writing, whether it exists or not.
///
/// Errors: `NotWritable` if the server does not let the key be written now.
#[inline(always)]
pub fn open<'a>(context: &'a Context, name: &'a Argument) -> Result<WritableKey<'a>, Error> {
    Ok(WritableKey::open(context, name)?)
}

/// Reads the state at a key, and leaves the key as it is.
///
/// Errors: those of `read`, and `NotWritable` if the server refuses even to read the key.
#[inline(always)]
pub fn peek(context: &Context, name: &Argument) -> Result<Stored, Error> {
    redis::peek(context, name, parse_value)?
}

/// Reads the state at an open key.
///
/// Errors: `WrongType` and `NotAState` if the key holds anything but TATs.
#[inline(always)]
pub fn read(key: &Key) -> Result<Stored, Error> {
    parse_value(key.value())
}

#[inline(always)]
fn parse_value(value: Value) -> Result<Stored, Error> {
    match value {
        Value::Absent => Ok(Stored::Absent),
        Value::String(text) => match parse(text) {
            Some(tat) => Ok(Stored::One(tat)),
            None => parse_rare(text).map(Stored::Several).ok_or(Error::NotAState),
        },
        Value::OtherType => Err(Error::WrongType),
    }
}

/// Reads the TATs of all quotas at an open key into `tats`. If there is no key, `tats` stays as the caller has made it:
/// the TATs of a full limiter.
///
/// Errors: those of `read`.
#[inline(always)]
pub fn read_all(key: &Key, tats: &mut Tats) -> Result<(), Error> {
    parse_all_of(key.value(), tats)
}

#[inline(always)]
fn parse_all_of(value: Value, tats: &mut Tats) -> Result<(), Error> {
    match value {
        Value::Absent => Ok(()),
        Value::String(text) => parse_all(text, tats).ok_or(Error::NotAState),
        Value::OtherType => Err(Error::WrongType),
    }
}

/// Reads the TATs of all quotas at a key, as `read_all` does, and leaves the key as it is.
///
/// Errors: those of `peek`.
#[inline(always)]
pub fn peek_all(context: &Context, name: &Argument, tats: &mut Tats) -> Result<(), Error> {
    redis::peek(context, name, |value| parse_all_of(value, tats))?
}

#[inline(always)]
fn parse(text: &[u8]) -> Option<Moment> {
    decimal::parse_moment(text).and_then(Moment::new)
}

#[inline(always)]
fn parse_all(text: &[u8], tats: &mut Tats) -> Option<()> {
    let (texts, []) = text.as_chunks::<MOMENT_DIGITS>() else { return None };
    tats.fill(texts.iter().map(|text| parse(text)))
}

#[cold]
fn parse_rare(text: &[u8]) -> Option<Tats> {
    let mut tats = Tats::NONE;
    parse_all(text, &mut tats)?;
    Some(tats)
}

/// Stores a change of the first quota's TAT and closes the key. The TATs of further quotas stay as they are. The key
/// expires at the last TAT, rounded up to a whole millisecond.
///
/// Errors: `NotWritable` if the server does not let the key be written now. Nothing has changed then.
#[inline(always)]
pub fn write(key: WritableKey, stored: &Stored, change: Change, now: Moment) -> Result<(), Error> {
    match (change, stored) {
        (Change::Nothing, _) => Ok(()),
        (_, Stored::Several(tats)) => {
            let mut tats = *tats;
            let change = tats.change_first(change, now);
            write_all(key, &tats, change)
        }
        (Change::Store(tat), _) => Ok(key.set(MOMENT_DIGITS, expiry(tat), |bytes| {
            if let Some(text) = bytes.first_chunk_mut() {
                *text = decimal::format(tat.nanos());
            }
        })?),
        (Change::Delete, _) => {
            key.delete();
            Ok(())
        }
    }
}

/// Stores the TATs of all quotas and closes the key, as `write` does.
///
/// Errors: those of `write`.
#[inline(always)]
pub fn write_all(key: WritableKey, tats: &Tats, change: Change) -> Result<(), Error> {
    match change {
        Change::Nothing => Ok(()),
        Change::Store(last) => {
            let length = tats.count().wrapping_mul(MOMENT_DIGITS);
            Ok(key.set(length, expiry(last), |bytes| {
                let mut rest = bytes;
                for tat in tats.iter() {
                    let Some((text, more)) = rest.split_first_chunk_mut() else { break };
                    *text = decimal::format(tat.nanos());
                    rest = more;
                }
            })?)
        }
        Change::Delete => {
            key.delete();
            Ok(())
        }
    }
}

/// Returns the expiry of a key whose last TAT this is, in milliseconds since the epoch.
#[inline(always)]
fn expiry(tat: Moment) -> u64 {
    tat.since_epoch().round_up(Unit::Milliseconds)
}

/// Makes sure that a key which reads as absent can be written. Close every key first: this may run another module's
/// callback, which may delete it.
///
/// Errors: `NotWritable` if the server does not let the key be written now.
pub fn make_writable(context: &Context, name: &Argument) -> Result<(), Error> {
    delete_expired(context, name)?;
    Ok(())
}

impl From<NotWritable> for Error {
    fn from(NotWritable: NotWritable) -> Self {
        Self::NotWritable
    }
}
