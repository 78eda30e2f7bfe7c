//! A call that reads one limiter and writes nothing. From top to bottom: arguments, state, decision, reply.

use std::ffi::CStr;

use crate::error::CommandError;
use crate::funnel::Unit;
use crate::limiter::Taking;
use crate::parameters::one_limiter;
use crate::redis::{Access, Argument, Context, Outcome, Parameter};
use crate::reply::reply;
use crate::request::{Request, now};
use crate::state;

pub const ACCESS: Access = Access::Read;
pub const COMPLEXITY: &CStr = c"O(1)";

pub const fn parameters(unit: Unit) -> [Parameter; 6] {
    one_limiter(Taking::Nothing, unit)
}

/// Handles `CL.LOOK key max_burst count period [quantity [max_burst count period ...]]`, and `CL.PLOOK`, whose times
/// are in milliseconds.
///
/// Reports whether `CL.THROTTLE` with the same arguments would be allowed now, but takes no tokens. Replies with five
/// integers: 0 if that call would be allowed or 1 if limited; the limit; the tokens that remain now; the time to wait,
/// or -1 if no wait is needed or waiting would not help; and the time until the limiter is full. With several quotas,
/// these integers describe the quota that decides, and a sixth gives its number.
#[inline(always)]
pub fn call(context: &mut Context, arguments: &[Argument], unit: Unit) -> Result<Outcome, CommandError> {
    let request = Request::parse(arguments, Taking::Nothing, unit, now())?;

    let tats = state::look(context, request.name)?;
    let verdict = request.limiter.decide(tats, Taking::Nothing, request.quantity)?.verdict;

    reply(context, Taking::Nothing, &verdict, unit);
    Ok(Outcome::of(verdict.limited))
}
