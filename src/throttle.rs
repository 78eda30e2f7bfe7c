//! A call that may take tokens from one limiter, top to bottom: arguments, state, decision, reply.

use crate::counts::Outcome;
use crate::error::{CommandError, Error};
use crate::funnel::{Moment, Taking, Unit};
use crate::limit::{Request, announce, reply};
use crate::redis::{Argument, Context, now};
use crate::state;

/// `CL.THROTTLE`, `CL.CHARGE`, `CL.TAKE key max_burst count period [quantity]`, by how they take, and by their unit
/// `CL.PTHROTTLE`, `CL.PCHARGE`, `CL.PTAKE`
///
/// Takes `quantity` tokens from the limiter at `key`, which holds `max_burst + 1` and gets `count` back every `period`.
/// A quantity has to be given, but for `CL.THROTTLE`, where it is 1 without. A negative one gives tokens back.
///
/// Replies with five integers: 0 if allowed or 1 if limited (of `CL.TAKE`, the tokens taken); the tokens that the
/// limiter holds when it is full; those that remain; the time to wait, or -1 if there is nothing to wait for; the time
/// until the limiter is full. Times are rounded up.
#[inline(always)]
pub fn throttle(
    context: &Context,
    arguments: &[Argument],
    taking: Taking,
    unit: Unit,
) -> Result<Outcome, CommandError> {
    let request = Request::of_one(arguments, taking, unit, Moment(now()))?;

    let key = state::open(context, request.key)?;
    let tat = state::read(&key)?;
    let verdict = request.funnel.decide(tat, taking, request.quantity).map_err(Error::from)?;
    // This closes the key, before a notification runs another module's callback, which may delete it.
    state::write(key, verdict.change)?;
    announce(context, &request, &verdict);

    let first = if taking == Taking::UpTo { verdict.taken } else { verdict.limited.into() };
    reply(context, first, &verdict, unit);
    Ok(Outcome::of(verdict.limited))
}
