//! Several limits in one decision, top to bottom: arguments, funnels, states, replies.

use crate::counts::Outcome;
use crate::error::{CommandError, Error};
use crate::funnel::{Change, Moment, Taking, Unit, Verdict};
use crate::redis::{Argument, Context, now};
use crate::state;
use crate::throttle::{Request, announce, reply};

/// The arguments of one limit, by name.
const GROUP: [&str; 5] = ["key", "max_burst", "count", "period", "quantity"];

/// `CL.MTHROTTLE`, or by its unit `CL.MPTHROTTLE key max_burst count period quantity [key … quantity ...]`
///
/// Decides several limits as one: if each allows its quantity, each takes it; if any is limited, none is touched.
/// A negative quantity gives tokens back.
/// Keys differ from each other; in a cluster they share a hash tag.
///
/// Replies with 0 if all allow or 1 if not, followed by five integers for each limit, in order, as `CL.THROTTLE`
/// would reply. Where the whole is limited, a limit that had room shows what it holds, with nothing taken.
pub fn mthrottle(context: &Context, arguments: &[Argument], unit: Unit) -> Result<Outcome, CommandError> {
    let arguments = match arguments {
        [_, arguments @ ..] if arguments.len() >= GROUP.len() => arguments,
        _ => return Err(Error::WrongArity.into()),
    };
    let now = Moment(now());
    let requests = in_groups(arguments.chunks(GROUP.len()), |group| match group {
        [key, max_burst, count, period, quantity] => {
            Request::parse(key, [max_burst, count, period], unit, Some(quantity), Taking::AllOrNone, now)
        }
        incomplete => Err(Error::Missing(GROUP.get(incomplete.len()).copied().unwrap_or_default())),
    })?;
    refuse_same_keys(&requests)?;

    // Every key is read before any is written, and closed before the next is opened: opening one may expire it, which may
    // run other modules' code, and that code may delete the keys that are open.
    let mut open = None;
    let mut limits = in_groups(requests, |request| {
        drop(open.take());
        let tat = state::read(open.insert(context.open_key(request.key)))?;
        let verdict = request.funnel.decide(tat, Taking::AllOrNone, request.quantity)?;
        Ok((request, tat, verdict))
    })?;
    let limited = limits.iter().any(|(_, _, verdict)| verdict.limited);
    // The last is still open, so it is the first to be written.
    for (request, tat, verdict) in limits.iter_mut().rev() {
        let read = open.take();
        if !limited {
            if verdict.change != Change::Nothing {
                state::write(read.unwrap_or_else(|| context.open_key(request.key)), verdict.change);
            }
        } else if !verdict.limited {
            // Shown as it is, and not as one of the limits that refuse.
            let look = request.funnel.look(*tat);
            *verdict = Verdict { limited: false, retry_after: None, ..look };
        }
    }
    for (request, _, verdict) in &limits {
        announce(context, request, verdict);
    }

    context.reply_array(limits.len().saturating_add(1));
    context.reply_integer(limited.into());
    for (_, _, verdict) in &limits {
        reply(context, verdict.limited.into(), verdict, unit);
    }
    Ok(Outcome::of(limited))
}

/// Does the same for each group; an error says for which.
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

/// One key cannot be two limits of one call: what the first takes, the second would not see.
fn refuse_same_keys(requests: &[Request]) -> Result<(), CommandError> {
    // Sorted, so that no number of groups makes this slow.
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
