//! A call that looks at one limiter and writes nothing, top to bottom: arguments, state, decision, reply.

use crate::counts::Outcome;
use crate::error::{CommandError, Error};
use crate::funnel::{Taking, Unit};
use crate::funnels::{Funnels, Tats};
use crate::redis::{Argument, Context};
use crate::reply::{reply, reply_with_quota};
use crate::request::{ONE_QUOTA, Request, now, parse_further, split_quotas};
use crate::state;

/// `CL.LOOK key max_burst count period [quantity [max_burst count period ...]]`. `unit` makes it `CL.PLOOK`.
///
/// Tells how `CL.THROTTLE` of that quantity would decide now, but takes nothing. Replies with 0 if it would be allowed
/// or 1 if limited; the limit; the tokens that remain now; the time to wait, or -1; the time until the limiter is full,
/// with nothing taken. A call with several quotas gets the integers of the quota that decides, and its number.
#[inline(always)]
pub fn look(context: &Context, arguments: &[Argument], unit: Unit) -> Result<Outcome, CommandError> {
    if arguments.len() > ONE_QUOTA {
        return look_by_several_quotas(context, arguments, unit);
    }
    let request = Request::of_one_quota(arguments, Taking::Nothing, unit, now())?;

    let tat = state::peek(context, request.key)?.first();
    let verdict = request.funnel.decide(tat, Taking::Nothing, request.quantity).map_err(Error::from)?;

    reply(context, Taking::Nothing, &verdict, unit);
    Ok(Outcome::of(verdict.limited))
}

#[inline(always)]
fn look_by_several_quotas(context: &Context, arguments: &[Argument], unit: Unit) -> Result<Outcome, CommandError> {
    let now = now();
    let (one, further) = split_quotas(arguments)?;
    let request = Request::of_one_quota(one, Taking::Nothing, unit, now)?;
    let mut quotas = Funnels::new(request.funnel);
    parse_further(&mut quotas, further, unit, now)?;

    let mut tats = Tats::NONE;
    state::peek_all(context, request.key, &mut tats)?;
    let decision = quotas.decide(&mut tats, Taking::Nothing, request.quantity).map_err(CommandError::of_quota)?;

    reply_with_quota(context, Taking::Nothing, &decision.verdict, unit, decision.quota);
    Ok(Outcome::of(decision.verdict.limited))
}
