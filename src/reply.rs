//! Answers a call: sends the integers of its reply and its keyspace notifications, or converts its error.

use crate::error::{CommandError, Error};
use crate::funnel::{Span, Unit};
use crate::limiter::{Taking, Verdict};
use crate::redis::{Argument, Context, ErrorReply};

/// Sends the verdict as five integers. For a limiter with several quotas, a sixth integer gives the number of the quota
/// that decides.
pub fn reply(context: &Context, taking: Taking, verdict: &Verdict, unit: Unit) {
    let units = |span: Span| span.round_up(unit).cast_signed();
    let first = if taking == Taking::UpTo { verdict.taken } else { verdict.limited.into() };
    context.reply_array(if verdict.quota.is_some() { 6 } else { 5 });
    context.reply_integer(first.cast_signed());
    context.reply_integer(verdict.limit.cast_signed());
    context.reply_integer(verdict.remaining.cast_signed());
    context.reply_integer(verdict.retry_after.map_or(-1, units));
    context.reply_integer(units(verdict.reset_after));
    if let Some(quota) = verdict.quota {
        context.reply_integer(quota.cast_signed());
    }
}

/// Sends a keyspace notification if the call took tokens, and another if the call was limited.
pub fn notify(context: &Context, name: &Argument, verdict: &Verdict) {
    if verdict.taken > 0 {
        context.notify(c"cl.throttle", name);
    }
    if verdict.limited {
        context.notify(c"cl.limited", name);
    }
}

impl From<CommandError> for ErrorReply {
    fn from(error: CommandError) -> Self {
        match error.reason {
            Error::WrongArity => Self::WrongArity,
            _ => Self::Text(error.to_string()),
        }
    }
}
