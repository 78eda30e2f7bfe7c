//! A call on several limiters, which allow or limit it together. From top to bottom: arguments, states, decisions,
//! reply.

use std::collections::BTreeMap;
use std::ffi::CStr;

use crate::error::{CommandError, Error, Place};
use crate::funnel::Unit;
use crate::limiter::{Change, Decision, Taking, Tats};
use crate::parameters;
use crate::redis::{Access, Argument, Context, Outcome, Parameter, delete_expired};
use crate::reply::{notify, reply};
use crate::request::{Request, now};
use crate::state;

/// One limiter's part of the call: the TATs stored before the call, the request, and the decision.
struct Decided<'a> {
    before: Option<Tats>,
    request: Request<'a>,
    decision: Decision,
}

pub const ACCESS: Access = Access::ReadWrite;
pub const COMPLEXITY: &CStr = c"O(N log N), N being the number of limiters";

pub const fn parameters(unit: Unit) -> [Parameter; 1] {
    [Parameter::repeated(c"limiter", parameters::group(unit))]
}

/// Handles `CL.MTHROTTLE key max_burst count period quantity [key … quantity ...]`, and `CL.MPTHROTTLE`, whose times
/// are in milliseconds.
///
/// Takes each limiter's quantity if all limiters have enough tokens; otherwise, takes nothing from any of them. A
/// negative quantity gives tokens back. The keys must differ and, in a cluster, share a hash tag.
///
/// Replies with 0 if all limiters allow the call or 1 if not, followed by a `CL.THROTTLE` reply for each limiter, in
/// order. If the call is limited, the reply for a limiter that had enough tokens shows that none were taken.
pub fn call(context: &mut Context, arguments: &[Argument], unit: Unit) -> Result<Outcome, CommandError> {
    let now = now();
    let group = parameters::group(unit);
    if arguments.len() < group.len() {
        return Err(Error::WrongArity.into());
    }
    let requests = in_groups(arguments.chunks(group.len()), |part| match group.get(part.len()) {
        None => Request::parse(part, Taking::AllOrNone, unit, now),
        Some(missing) => Err(Error::Missing(missing.name()).into()),
    })?;
    refuse_same_keys(&requests)?;

    // Read every key before writing any: a single limiter can limit the whole call.
    let mut all = in_groups(requests, |request| {
        let key = state::open(context, request.name)?;
        let before = state::read(&key)?;
        let decision = request.limiter.decide(before.clone(), Taking::AllOrNone, request.quantity)?;
        Ok(Decided { before, request, decision })
    })?;
    let limited = all.iter().any(|one| one.decision.verdict.limited);
    if limited {
        for Decided { request, before, decision } in all.iter_mut().filter(|one| !one.decision.verdict.limited) {
            // Report the limiter's current state, and that it is not limited. `Taking::Nothing` would report a limiter
            // in debt as limited, even for 0 tokens.
            decision.verdict = request.limiter.decide(before.take(), Taking::UpTo, 0)?.verdict;
        }
    } else {
        write_all(context, &all)?;
    }
    for Decided { request, decision, .. } in &all {
        notify(context, request.name, &decision.verdict);
    }

    context.reply_array(all.len().saturating_add(1));
    context.reply_integer(limited.into());
    for Decided { decision, .. } in &all {
        reply(context, Taking::AllOrNone, &decision.verdict, unit);
    }
    Ok(Outcome::of(limited))
}

/// Writes every limiter, or none of them if one cannot be written now.
fn write_all(context: &mut Context, all: &[Decided]) -> Result<(), CommandError> {
    in_groups(all, |Decided { request, before, decision }| {
        if before.is_none() && decision.change != Change::Nothing {
            delete_expired(context, request.name).map_err(Error::from)?;
        }
        Ok(())
    })?;
    in_groups(all, |Decided { request, decision, .. }| {
        if decision.change != Change::Nothing {
            // The server decides before a command, and not during it, whether keys can be written. Once the first key
            // is open, the rest fail only in the case described at `Key::set`. Limiters written by then stay.
            state::write(state::open(context, request.name)?, &decision.change)?;
        }
        Ok(())
    })?;
    Ok(())
}

/// Calls `each` with every group (one limiter's part of the call), and collects the results. Adds the group's number
/// to an error.
fn in_groups<G, T>(
    groups: impl IntoIterator<IntoIter: ExactSizeIterator<Item = G>>,
    mut each: impl FnMut(G) -> Result<T, CommandError>,
) -> Result<Vec<T>, CommandError> {
    let groups = groups.into_iter();
    let mut results = Vec::with_capacity(groups.len());
    for (group, number) in groups.zip(1..) {
        // A group has only one quota, so the group's number is enough to locate the error.
        let in_group = |CommandError { reason, .. }| CommandError { reason, place: Place::Group(number) };
        results.push(each(group).map_err(in_group)?);
    }
    Ok(results)
}

/// Refuses a call that gives a key twice: the second decision would not see the tokens that the first takes.
fn refuse_same_keys(requests: &[Request]) -> Result<(), CommandError> {
    let mut seen = BTreeMap::new();
    for (request, number) in requests.iter().zip(1..) {
        if let Some(first) = seen.insert(request.name.bytes(), number) {
            return Err(CommandError { reason: Error::SameKey(first), place: Place::Group(number) });
        }
    }
    Ok(())
}
