//! The errors that a caller can see. `Display` writes the reply's text, which begins with the error code.

/// The reason why a call failed. A failed call changes nothing, except in the case described at `Key::set`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The number of arguments is wrong. The server writes the text of this error itself, as for its own commands.
    #[error("ERR wrong number of arguments")]
    WrongArity,
    #[error("ERR {0} is missing")]
    Missing(&'static str),
    #[error("ERR {0} is not an integer or out of range")]
    NotAnInteger(&'static str),
    #[error("ERR {0} must be {1} or more")]
    TooSmall(&'static str, i64),
    #[error("ERR a limiter has at most {0} quotas")]
    TooManyQuotas(usize),
    #[error("ERR key is the same as in group {0}")]
    SameKey(u64),
    #[error("ERR count and period allow more than one token per nanosecond")]
    TooFast,
    #[error("ERR max_burst, count and period: the tokens would not be back before the year 2262")]
    TooLarge,
    #[error("ERR quantity: the tokens would not be back before the year 2262")]
    DebtTooLong,
    /// The key's value is not a string. The server's own commands use the same text.
    #[error("WRONGTYPE Operation against a key holding the wrong kind of value")]
    WrongType,
    #[error("ERR the key holds no rate limiter state")]
    NotAState,
    /// The server does not allow the key to be read or written now. Clients that know the code TRYAGAIN, mostly cluster
    /// clients, retry the call.
    #[error("TRYAGAIN the key cannot be read or written at this moment")]
    Unavailable,
}

/// The part of a call that an error concerns. Quotas are numbered from 1, and so are the groups of `CL.MTHROTTLE`, each
/// of which has the arguments for one limiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Place {
    /// The whole call, or its first quota. The first quota's errors have no number, so they read the same whether or
    /// not more quotas follow.
    #[error("")]
    Call,
    #[error(" (quota {0})")]
    Quota(u64),
    #[error(" (group {0})")]
    Group(u64),
}

/// The error of a call: the reason, and the part of the call that caused it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{reason}{place}")]
pub struct CommandError {
    pub reason: Error,
    pub place: Place,
}

impl From<Error> for CommandError {
    fn from(reason: Error) -> Self {
        Self { reason, place: Place::Call }
    }
}
