//! A decided call's answer: the integers of its reply, and its keyspace notifications.

use crate::funnel::{Span, Taking, Unit, Verdict};
use crate::redis::{Argument, Context};

/// Replies with one limiter's five integers.
#[inline(always)]
pub fn reply(context: &Context, taking: Taking, verdict: &Verdict, unit: Unit) {
    context.reply_array(5);
    reply_integers(context, taking, verdict, unit);
}

/// Replies with the five integers of the quota that decides, and its number.
#[inline(always)]
pub fn reply_with_quota(context: &Context, taking: Taking, verdict: &Verdict, unit: Unit, quota: u16) {
    context.reply_array(6);
    reply_integers(context, taking, verdict, unit);
    context.reply_integer(quota.into());
}

#[inline(always)]
fn reply_integers(context: &Context, taking: Taking, verdict: &Verdict, unit: Unit) {
    let units = |span: Span| span.round_up(unit).cast_signed();
    let first = if taking == Taking::UpTo { verdict.taken } else { verdict.limited.into() };
    context.reply_integer(first.cast_signed());
    context.reply_integer(verdict.limit.cast_signed());
    context.reply_integer(verdict.remaining.cast_signed());
    context.reply_integer(verdict.retry_after.map_or(-1, units));
    context.reply_integer(units(verdict.reset_after));
}

/// Sends keyspace notifications: tokens were taken, the call was limited, or both. Close every key first.
#[inline(always)]
pub fn announce(context: &Context, key: &Argument, verdict: &Verdict) {
    if verdict.taken > 0 {
        context.notify(c"cl.throttle", key);
    }
    if verdict.limited {
        context.notify(c"cl.limited", key);
    }
}
