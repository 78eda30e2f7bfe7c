//! A call that may take tokens from one limiter, top to bottom: arguments, state, decision, reply.

use crate::counts::Outcome;
use crate::error::{CommandError, Error};
use crate::funnel::{Taking, Unit};
use crate::funnels::{Funnels, Tats};
use crate::redis::{Argument, Context};
use crate::reply::{announce, reply, reply_with_quota};
use crate::request::{ONE_QUOTA, Request, now, parse_further, split_quotas};
use crate::state;

/// `CL.THROTTLE key max_burst count period [quantity]`. `taking` makes it `CL.CHARGE` or `CL.TAKE`, and `unit` makes
/// the three `CL.PTHROTTLE`, `CL.PCHARGE` and `CL.PTAKE`.
///
/// Takes `quantity` tokens from the limiter at `key`, which holds `max_burst + 1` and gets `count` back every `period`.
/// The quantity of `CL.THROTTLE` is 1 if it is not given. A negative one gives tokens back.
///
/// Replies with five integers: 0 if allowed or 1 if limited (`CL.TAKE`: the tokens taken); the tokens that the limiter
/// holds when it is full; the tokens that remain; the time to wait, or -1 if no wait is needed or none helps; the time
/// until the limiter is full. Times are rounded up.
#[inline(always)]
pub fn throttle(
    context: &Context,
    arguments: &[Argument],
    taking: Taking,
    unit: Unit,
) -> Result<Outcome, CommandError> {
    if arguments.len() > ONE_QUOTA {
        return throttle_by_several_quotas(context, arguments, taking, unit);
    }
    let now = now();
    let request = Request::of_one_quota(arguments, taking, unit, now)?;

    let key = state::open(context, request.key)?;
    let stored = state::read(&key)?;
    let verdict = request.funnel.decide(stored.first(), taking, request.quantity).map_err(Error::from)?;
    // This closes the key, before a notification runs another module's callback, which may delete it.
    state::write(key, &stored, verdict.change, now)?;
    announce(context, request.key, &verdict);

    reply(context, taking, &verdict, unit);
    Ok(Outcome::of(verdict.limited))
}

/// The same commands with several quotas: `… quantity max_burst count period [max_burst count period ...]`
///
/// Decides all quotas as one: see [`crate::funnels`]. Replies with the five integers of the quota that decides, and its
/// number: 1, 2, …
#[inline(always)]
fn throttle_by_several_quotas(
    context: &Context,
    arguments: &[Argument],
    taking: Taking,
    unit: Unit,
) -> Result<Outcome, CommandError> {
    let now = now();
    let (one, further) = split_quotas(arguments)?;
    let request = Request::of_one_quota(one, taking, unit, now)?;
    let mut quotas = Funnels::new(request.funnel);
    parse_further(&mut quotas, further, unit, now)?;

    let key = state::open(context, request.key)?;
    let mut tats = Tats::NONE;
    state::read_all(&key, &mut tats)?;
    let decision = quotas.decide(&mut tats, taking, request.quantity).map_err(CommandError::of_quota)?;
    state::write_all(key, &tats, decision.verdict.change)?;
    announce(context, request.key, &decision.verdict);

    reply_with_quota(context, taking, &decision.verdict, unit, decision.quota);
    Ok(Outcome::of(decision.verdict.limited))
}
