//! Every error that a caller can see. `Display` is the reply's text, error code first.

use thiserror::Error;

use crate::funnel;
use crate::redis::ErrorReply;

/// The reason why a call was refused. A refused call has changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Error {
    /// The server words this reply itself: it is the same as for the server's own commands.
    #[error("ERR wrong number of arguments")]
    WrongArity,
    #[error("ERR {0} is not an integer or out of range")]
    NotAnInteger(&'static str),
    #[error("ERR {0} must be {1} or more")]
    TooSmall(&'static str, i64),
    /// The rule cannot decide the call.
    #[error("ERR {0}")]
    Undecidable(#[from] funnel::Error),
    /// The text is that of the server's own commands.
    #[error("WRONGTYPE Operation against a key holding the wrong kind of value")]
    WrongType,
    #[error("ERR the key holds no rate limiter state")]
    NotAState,
    /// Clients that know this code, mostly cluster clients, send the call again.
    #[error("TRYAGAIN the key cannot be written at this moment")]
    NotWritable,
    #[error("ERR {0} is missing")]
    Missing(&'static str),
    #[error("ERR key is the same as in group {0}")]
    SameKey(usize),
    #[error("ERR a limiter has at most {0} quotas")]
    TooManyQuotas(usize),
}

/// A command's error: the reason, and the number of the limiter or quota that it is about: 1, 2, …
#[derive(Debug, Error)]
pub enum CommandError {
    #[error(transparent)]
    Call(#[from] Error),
    #[error("{0} (group {1})")]
    Group(Error, usize),
    #[error("{0} (quota {1})")]
    Quota(Error, u16),
}

impl CommandError {
    /// Makes the error of a call with several quotas. An error of the first quota names no quota, like the error of a
    /// call with only one.
    pub fn of_quota((error, quota): (funnel::Error, u16)) -> Self {
        if quota == 1 { Self::Call(error.into()) } else { Self::Quota(error.into(), quota) }
    }
}

impl From<CommandError> for ErrorReply {
    fn from(error: CommandError) -> Self {
        match error {
            CommandError::Call(Error::WrongArity) => Self::WrongArity,
            other => Self::Text(other.to_string()),
        }
    }
}
