//! A limiter's state: the TAT as decimal text in a native string, which expires when the limiter is full.

use crate::decimal;
use crate::error::Error;
use crate::funnel::{Change, Moment, Unit};
use crate::redis::{Argument, Context, Key, Value, WritableKey};

/// Opens a limiter's key for reading and writing, whether it exists or not.
///
/// Errors: `NotWritable` if the server does not let the key be written now.
#[inline(always)]
pub fn open<'a>(context: &'a Context, name: &'a Argument) -> Result<WritableKey<'a>, Error> {
    context.open_key(name).ok_or(Error::NotWritable)
}

/// The TAT that is stored at a key, which is opened for reading alone; none if there is no key.
///
/// Errors: as `read`.
#[inline(always)]
pub fn peek(context: &Context, name: &Argument) -> Result<Option<Moment>, Error> {
    context.open_key_to_read(name).map_or(Ok(None), |key| read(&key))
}

/// The stored TAT; none if there is no key.
///
/// Errors: `WrongType` and `NotAState` if the key holds anything but a TAT.
#[inline(always)]
pub fn read(key: &Key) -> Result<Option<Moment>, Error> {
    match key.value() {
        Value::Absent => Ok(None),
        Value::String(text) => match decimal::parse_moment(text) {
            Some(tat) => Ok(Some(Moment(tat))),
            None => Err(Error::NotAState),
        },
        Value::OtherType => Err(Error::WrongType),
    }
}

/// Stores a TAT and closes the key. The key expires when the TAT has passed: at the first whole millisecond not before
/// it.
///
/// Errors: `NotWritable`, and nothing changed, if the server does not let the key be written now.
#[inline(always)]
pub fn write(key: WritableKey, change: Change) -> Result<(), Error> {
    match change {
        Change::Nothing => Ok(()),
        Change::Store(tat) => {
            key.set(&decimal::format(tat.0), tat.since_epoch().round_up(Unit::Milliseconds)).ok_or(Error::NotWritable)
        }
        Change::Delete => {
            key.delete();
            Ok(())
        }
    }
}

/// Makes sure that a key which reads as absent can be written. Nothing else may be open: another module's callback may
/// run, which may delete what is.
///
/// Errors: `NotWritable` if the server does not let it be written now.
pub fn make_writable(context: &Context, name: &Argument) -> Result<(), Error> {
    context.delete_expired(name).ok_or(Error::NotWritable)
}
