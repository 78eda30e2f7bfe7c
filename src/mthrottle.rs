//! Several limiters in one decision, top to bottom: arguments, states, decisions, reply.

use crate::counts::Outcome;
use crate::error::{CommandError, Error};
use crate::funnel::{Change, Moment, Taking, Unit, Verdict};
use crate::redis::{Argument, Context, WritableKey};
use crate::reply::{announce, reply};
use crate::request::{Request, now};
use crate::state::{self, Stored};

/// The names of one limiter's arguments.
const GROUP: [&str; 5] = ["key", "max_burst", "count", "period", "quantity"];

/// A limiter's part of the call, the state that its key holds, and how it is decided.
type Decision<'a> = (Request<'a>, Stored, Verdict);

/// `CL.MTHROTTLE key max_burst count period quantity [key … quantity ...]`. `unit` makes it `CL.MPTHROTTLE`.
///
/// Decides several limiters as one: if each allows its quantity, the call takes from each; if any is limited, it takes
/// from none. A negative quantity gives tokens back. Keys differ from each other; in a cluster they share a hash tag.
///
/// Replies with 0 if all allow or 1 if not, followed by five integers for each limiter, in order, as `CL.THROTTLE`
/// would reply. If the call is limited, a limiter that would have allowed it shows its tokens with nothing taken.
pub fn mthrottle(context: &Context, arguments: &[Argument], unit: Unit) -> Result<Outcome, CommandError> {
    let arguments = match arguments {
        [_, arguments @ ..] if arguments.len() >= GROUP.len() => arguments,
        _ => return Err(Error::WrongArity.into()),
    };
    let now = now();
    let requests = in_groups(arguments.chunks(GROUP.len()), |group| match group {
        [key, max_burst, count, period, quantity] => {
            Request::parse(key, [max_burst, count, period], Some(quantity), Taking::AllOrNone, unit, now)
        }
        incomplete => Err(Error::Missing(GROUP.get(incomplete.len()).copied().unwrap_or_default())),
    })?;
    refuse_same_keys(&requests)?;

    // Read every key before the first is written, and close each before the next is opened: opening a key may expire
    // it, which may run another module's callback, which may delete the keys that are open.
    let mut last = None;
    let mut decisions = in_groups(requests, |request| {
        drop(last.take());
        let stored = state::read(last.insert(state::open(context, request.key)?))?;
        let verdict = request.funnel.decide(stored.first(), Taking::AllOrNone, request.quantity)?;
        Ok((request, stored, verdict))
    })?;
    let limited = decisions.iter().any(|(_, _, verdict)| verdict.limited);
    if limited {
        drop(last);
        for (request, stored, verdict) in decisions.iter_mut().filter(|(_, _, verdict)| !verdict.limited) {
            *verdict = request.funnel.untouched(stored.first());
        }
    } else {
        write_all(context, last, &decisions, now)?;
    }
    for (request, _, verdict) in &decisions {
        announce(context, request.key, verdict);
    }

    context.reply_array(decisions.len().saturating_add(1));
    context.reply_integer(limited.into());
    for (_, _, verdict) in &decisions {
        reply(context, Taking::AllOrNone, verdict, unit);
    }
    Ok(Outcome::of(limited))
}

/// Writes every limiter, or none if one cannot be written now. `last` is the key of the last limiter, still open.
fn write_all(
    context: &Context,
    mut last: Option<WritableKey>,
    decisions: &[Decision],
    now: Moment,
) -> Result<(), CommandError> {
    if context.are_writes_paused() {
        drop(last.take());
        in_groups(decisions, |(request, stored, verdict)| match (stored, verdict.change) {
            (Stored::Absent, Change::Store(_)) => state::make_writable(context, request.key),
            _ => Ok(()),
        })?;
    }
    // Write in reverse order: the key that may still be open is that of the last limiter.
    for (index, (request, stored, verdict)) in decisions.iter().enumerate().rev() {
        let open = last.take();
        if verdict.change != Change::Nothing {
            // A later key cannot fail here: before a server runs a command, it has decided that keys can be written.
            let key = open.map_or_else(|| state::open(context, request.key), Ok);
            let written = key.and_then(|key| state::write(key, stored, verdict.change, now));
            written.map_err(|error| CommandError::Group(error, index.saturating_add(1)))?;
        }
    }
    Ok(())
}

/// Calls `each` for every group of arguments. An error names its group.
fn in_groups<G, T>(
    groups: impl IntoIterator<Item = G>,
    mut each: impl FnMut(G) -> Result<T, Error>,
) -> Result<Vec<T>, CommandError> {
    groups
        .into_iter()
        .zip(1..)
        .map(|(group, number)| each(group).map_err(|error| CommandError::Group(error, number)))
        .collect()
}

/// Refuses a key that is given twice: the second limiter would not see the tokens that the first takes.
fn refuse_same_keys(requests: &[Request]) -> Result<(), CommandError> {
    // Sort the keys, so that no number of groups makes this slow.
    let mut keys: Vec<_> = requests.iter().map(|request| request.key.bytes()).zip(1..).collect();
    keys.sort_unstable();
    let same = keys.windows(2).filter_map(|pair| match pair {
        [(one, first), (other, second)] if one == other => Some((*second, *first)),
        _ => None,
    });
    match same.min() {
        Some((second, first)) => Err(CommandError::Group(Error::SameKey(first), second)),
        None => Ok(()),
    }
}
