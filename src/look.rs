//! A call that looks at one limiter and writes nothing, top to bottom: arguments, state, decision, reply.

use crate::counts::Outcome;
use crate::error::{CommandError, Error};
use crate::funnel::{Moment, Taking, Unit};
use crate::limit::{Request, reply};
use crate::redis::{Argument, Context, now};
use crate::state;

/// `CL.LOOK key max_burst count period [quantity]`, or by its unit `CL.PLOOK`
///
/// Replies as `CL.THROTTLE` of that quantity would decide now, but takes nothing: 0 if it would be allowed or 1 if
/// limited; the limit; the tokens that remain now; the time to wait, or -1; the time until the limiter is full as it
/// is.
#[inline(always)]
pub fn look(context: &Context, arguments: &[Argument], unit: Unit) -> Result<Outcome, CommandError> {
    let request = Request::of_one(arguments, Taking::Nothing, unit, Moment(now()))?;

    let tat = state::peek(context, request.key)?;
    let verdict = request.funnel.decide(tat, Taking::Nothing, request.quantity).map_err(Error::from)?;

    reply(context, verdict.limited.into(), &verdict, unit);
    Ok(Outcome::of(verdict.limited))
}
