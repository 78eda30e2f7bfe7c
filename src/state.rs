//! A limiter's state: the TAT as decimal text in a native string, which expires when the funnel is empty.

use crate::decimal;
use crate::error::Error;
use crate::funnel::{Change, Moment, Unit};
use crate::redis::{Key, Value};

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

/// Stores a TAT until it has passed, and closes the key: it expires at the first whole millisecond that is not before it.
#[inline(always)]
pub fn write(key: Key, change: Change) {
    match change {
        Change::Nothing => {}
        Change::Store(tat) => {
            let expire_at = tat.since_epoch().round_up(Unit::Milliseconds);
            key.set(&decimal::format(tat.0), expire_at, || decimal::Short::new(expire_at));
        }
        Change::Delete => key.delete(),
    }
}
