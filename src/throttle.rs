//! A call that may take tokens from one limiter. From top to bottom: arguments, state, decision, reply.

use std::ffi::CStr;

use crate::error::CommandError;
use crate::funnel::Unit;
use crate::limiter::Taking;
use crate::parameters::one_limiter;
use crate::redis::{Access, Argument, Context, Outcome, Parameter};
use crate::reply::{notify, reply};
use crate::request::{Request, now};
use crate::state;

pub const ACCESS: Access = Access::ReadWrite;
pub const COMPLEXITY: &CStr = c"O(1)";

pub const fn parameters(taking: Taking, unit: Unit) -> [Parameter; 6] {
    one_limiter(taking, unit)
}

/// Handles `CL.THROTTLE key max_burst count period [quantity [max_burst count period ...]]` or, with another `taking`,
/// `CL.CHARGE` or `CL.TAKE`. `CL.PTHROTTLE`, `CL.PCHARGE` and `CL.PTAKE` are the same with times in milliseconds.
///
/// Takes `quantity` tokens from the limiter at `key`. Each of its quotas holds `max_burst + 1` tokens and gets `count`
/// back every `period`. For `CL.THROTTLE`, the quantity defaults to 1. A negative quantity gives tokens back.
///
/// Replies with five integers: 0 if allowed or 1 if limited (`CL.TAKE`: the tokens taken); the tokens that the limiter
/// holds when it is full; the tokens that remain; the time to wait, or -1 if no wait is needed or waiting would not
/// help; and the time until the limiter is full. Times are rounded up. With several quotas, these integers describe the
/// quota that decides, and a sixth gives its number: 1, 2, …
#[inline(always)]
pub fn call(
    context: &mut Context,
    arguments: &[Argument],
    taking: Taking,
    unit: Unit,
) -> Result<Outcome, CommandError> {
    let request = Request::parse(arguments, taking, unit, now())?;

    let key = state::open(context, request.name)?;
    let tats = state::read(&key)?;
    let decision = request.limiter.decide(tats, taking, request.quantity)?;
    state::write(key, &decision.change)?;
    notify(context, request.name, &decision.verdict);

    reply(context, taking, &decision.verdict, unit);
    Ok(Outcome::of(decision.verdict.limited))
}
