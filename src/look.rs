//! A call that looks at one limiter and writes nothing, top to bottom: arguments, state, decision, reply.

use crate::counts::Outcome;
use crate::error::CommandError;
use crate::funnel::{Moment, Taking, Unit};
use crate::redis::{Access, Argument, Context, Parameter};
use crate::reply::reply;
use crate::request::{Request, for_number_of_quotas, one_limiter};
use crate::state;

pub const ACCESS: Access = Access::Read;

pub const fn parameters(unit: Unit) -> [Parameter; 6] {
    one_limiter(Taking::Nothing, unit)
}

/// `CL.LOOK key max_burst count period [quantity [max_burst count period ...]]`. `unit` makes it `CL.PLOOK`.
///
/// Tells how `CL.THROTTLE` of that quantity would decide now, but takes nothing. Replies with 0 if it would be allowed
/// or 1 if limited; the limit; the tokens that remain now; the time to wait, or -1; the time until the limiter is full,
/// with nothing taken. A call with several quotas gets the integers of the quota that decides, and its number.
#[inline(always)]
pub fn call(context: &Context, arguments: &[Argument], unit: Unit) -> Result<Outcome, CommandError> {
    for_number_of_quotas!(arguments, call_for(context, arguments, unit))
}

#[inline(always)]
fn call_for<const FURTHER: usize>(
    context: &Context,
    arguments: &[Argument],
    unit: Unit,
) -> Result<Outcome, CommandError> {
    let now = Moment::up_to_last(context.now());
    let request = Request::<FURTHER>::parse(arguments, Taking::Nothing, unit, now)?;

    let tats = state::peek(context, request.key)?;
    let decision = request.limiter.decide(tats, Taking::Nothing, request.quantity)?;

    reply(context, Taking::Nothing, &decision.verdict, unit);
    Ok(Outcome::of(decision.verdict.limited))
}
