//! A call that looks at one limiter and writes nothing, top to bottom: arguments, state, decision, reply.

use crate::counts::Outcome;
use crate::error::{CommandError, Error};
use crate::funnel::{Moment, Taking, Unit};
use crate::limiter::MOST_QUOTAS;
use crate::redis::{Access, Argument, Context, Parameter, clock};
use crate::reply::reply;
use crate::request::{ONE_QUOTA, Request, TWO_QUOTAS, one_limiter};
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
    // Compiled for 1, 2 and 8 quotas: room for 8 would cost a call with one 5%.
    match arguments.len() {
        words if words <= ONE_QUOTA => call_for::<0>(context, arguments, unit),
        words if words <= TWO_QUOTAS => call_for::<1>(context, arguments, unit),
        _ => call_for::<{ MOST_QUOTAS - 1 }>(context, arguments, unit),
    }
}

#[inline(always)]
fn call_for<const FURTHER: usize>(
    context: &Context,
    arguments: &[Argument],
    unit: Unit,
) -> Result<Outcome, CommandError> {
    let now = Moment::new_saturating(clock::now());
    let request = Request::<FURTHER>::parse(arguments, Taking::Nothing, unit, now)?;

    // The value is there only within the closure, which reads all TATs if there are more than the call has quotas.
    let mut all = Err(Error::NotAState);
    let tats = state::peek(context, request.key, |value| {
        let tats = state::parse(value);
        if let Ok(None) = tats {
            all = state::parse_all(value);
        }
        tats
    })?;
    let verdict = match tats {
        Some(tats) => request.limiter.decide(tats, Taking::Nothing, request.quantity)?.verdict,
        None => request.limiter.wide().decide(all?, Taking::Nothing, request.quantity)?.verdict,
    };

    reply(context, Taking::Nothing, &verdict, unit);
    Ok(Outcome::of(verdict.limited))
}
