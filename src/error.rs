//! Every error that a caller can see. `Display` is the reply's text, error code first.

use thiserror::Error;

use crate::funnel;
use crate::limiter::{MOST_QUOTAS, QuotaError};
use crate::redis::{ErrorReply, Unavailable};

/// The reason why a call was refused. A refused call has changed nothing, but for the case that [`Unavailable`] names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Error {
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
    #[error("TRYAGAIN {0}")]
    Unavailable(#[from] Unavailable),
    #[error("ERR {0} is missing")]
    Missing(&'static str),
    #[error("ERR key is the same as in group {0}")]
    SameKey(usize),
    #[error("ERR a limiter has at most {MOST_QUOTAS} quotas")]
    TooManyQuotas,
}

/// A command's error: the reason, and the number of the limiter or quota that it is about: 1, 2, …
#[derive(Debug, Clone, Copy)]
pub enum CommandError {
    /// The server words this reply itself: it is the same as for the server's own commands.
    WrongArity,
    Call(Error),
    Group(Error, usize),
    Quota(Error, u64),
}

impl CommandError {
    /// Makes the error of one limiter of several, which has only one quota.
    pub fn of_group(self, number: usize) -> Self {
        match self {
            Self::WrongArity => Self::WrongArity,
            Self::Call(error) | Self::Quota(error, _) | Self::Group(error, _) => Self::Group(error, number),
        }
    }
}

impl From<Error> for CommandError {
    fn from(error: Error) -> Self {
        Self::Call(error)
    }
}

/// An error of the first quota names no quota, like the error of a call with only one.
impl From<QuotaError> for CommandError {
    fn from((error, quota): QuotaError) -> Self {
        if quota == 1 { Self::Call(error.into()) } else { Self::Quota(error.into(), quota) }
    }
}

impl From<CommandError> for ErrorReply {
    fn from(error: CommandError) -> Self {
        match error {
            CommandError::WrongArity => Self::WrongArity,
            CommandError::Call(error) => Self::Text(error.to_string()),
            CommandError::Group(error, number) => Self::Text(format!("{error} (group {number})")),
            CommandError::Quota(error, number) => Self::Text(format!("{error} (quota {number})")),
        }
    }
}
