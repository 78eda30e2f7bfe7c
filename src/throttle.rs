//! A call that may take tokens from one limiter, top to bottom: arguments, state, decision, reply.

use crate::counts::Outcome;
use crate::error::CommandError;
use crate::funnel::{Moment, Taking, Unit};
use crate::limiter::{MOST_QUOTAS, Tats};
use crate::redis::{Access, Argument, Context, WritableKey, clock};
use crate::reply::{announce, reply};
pub use crate::request::one_limiter as parameters;
use crate::request::{ONE_QUOTA, Request, TWO_QUOTAS};
use crate::state;

pub const ACCESS: Access = Access::ReadWrite;

/// `CL.THROTTLE key max_burst count period [quantity [max_burst count period ...]]`. `taking` makes it `CL.CHARGE` or
/// `CL.TAKE`, and `unit` makes the three `CL.PTHROTTLE`, `CL.PCHARGE` and `CL.PTAKE`.
///
/// Takes `quantity` tokens from the limiter at `key`. Each of its quotas holds `max_burst + 1` tokens and gets `count`
/// back every `period`. The quantity of `CL.THROTTLE` is 1 if it is not given. A negative one gives tokens back.
///
/// Replies with five integers: 0 if allowed or 1 if limited (`CL.TAKE`: the tokens taken); the tokens that the limiter
/// holds when it is full; the tokens that remain; the time to wait, or -1 if no wait is needed or none helps; the time
/// until the limiter is full. Times are rounded up. A call with several quotas gets the integers of the quota that
/// decides, and its number: 1, 2, …
#[inline(always)]
pub fn call(context: &Context, arguments: &[Argument], taking: Taking, unit: Unit) -> Result<Outcome, CommandError> {
    // Compiled for 1, 2 and 8 quotas: room for 8 would cost a call with one 5%.
    match arguments.len() {
        words if words <= ONE_QUOTA => call_for::<0>(context, arguments, taking, unit),
        words if words <= TWO_QUOTAS => call_for::<1>(context, arguments, taking, unit),
        _ => call_for::<{ MOST_QUOTAS - 1 }>(context, arguments, taking, unit),
    }
}

#[inline(always)]
fn call_for<const FURTHER: usize>(
    context: &Context,
    arguments: &[Argument],
    taking: Taking,
    unit: Unit,
) -> Result<Outcome, CommandError> {
    let now = Moment::new_saturating(clock::now());
    let request = Request::<FURTHER>::parse(arguments, taking, unit, now)?;

    let key = state::open(context, request.key)?;
    match state::read(&key)? {
        Some(tats) => answer(context, &request, tats, key, taking, unit),
        None => answer_wide(context, &request.wide(), key, taking, unit),
    }
}

#[inline(always)]
fn answer<const FURTHER: usize>(
    context: &Context,
    request: &Request<FURTHER>,
    tats: Tats<FURTHER>,
    key: WritableKey,
    taking: Taking,
    unit: Unit,
) -> Result<Outcome, CommandError> {
    let decision = request.limiter.decide(tats, taking, request.quantity)?;
    // This closes the key, before a notification runs another module's callback, which may delete it.
    state::write(key, &decision.change)?;
    announce(context, request.key, &decision.verdict);

    reply(context, taking, &decision.verdict, unit);
    Ok(Outcome::of(decision.verdict.limited))
}

/// Answers a call on a key that has more TATs than the call has quotas.
#[cold]
fn answer_wide(
    context: &Context,
    request: &Request<{ MOST_QUOTAS - 1 }>,
    key: WritableKey,
    taking: Taking,
    unit: Unit,
) -> Result<Outcome, CommandError> {
    answer(context, request, state::read_all(&key)?, key, taking, unit)
}
