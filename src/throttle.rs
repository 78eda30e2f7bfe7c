//! A call on one limit, top to bottom: arguments, funnel, state, reply.

use std::num::NonZero;

use crate::counts::Outcome;
use crate::decimal;
use crate::error::{CommandError, Error};
use crate::funnel::{Funnel, Moment, Quota, Span, Taking, Unit, Verdict};
use crate::redis::{Argument, Context, now};
use crate::state;

/// `CL.THROTTLE`, `CL.CHARGE`, `CL.TAKE key max_burst count period [quantity]`, by how they take, and by their unit
/// `CL.PTHROTTLE`, `CL.PCHARGE`, `CL.PTAKE`
///
/// Takes `quantity` tokens from the funnel at `key`, which holds `max_burst + 1` and leaks `count` every `period`. A
/// quantity has to be given, but for `CL.THROTTLE`, where it is 1 without. A negative one gives tokens back.
///
/// Replies with five integers: 0 if allowed or 1 if limited (of `CL.TAKE`, the tokens taken); the tokens that the funnel
/// holds; those that are left; the time to wait, or -1 if there is nothing to wait for; the time until the funnel is
/// empty. Times are rounded up.
#[inline(always)]
pub fn throttle(
    context: &Context,
    arguments: &[Argument],
    taking: Taking,
    unit: Unit,
) -> Result<Outcome, CommandError> {
    let (key, quota, quantity) = match arguments {
        [_, key, max_burst, count, period, quantity] => (key, [max_burst, count, period], Some(quantity)),
        [_, key, max_burst, count, period] if taking == Taking::AllOrNone => (key, [max_burst, count, period], None),
        _ => return Err(Error::WrongArity.into()),
    };
    let request = Request::parse(key, quota, unit, quantity, taking, Moment(now()))?;

    let key = context.open_key(request.key);
    let verdict = request.funnel.decide(state::read(&key)?, taking, request.quantity)?;
    // This closes the key: what is announced may run other modules' code, which may do anything to it.
    state::write(key, verdict.change);
    announce(context, &request, &verdict);

    let first = if taking == Taking::UpTo { verdict.taken } else { verdict.limited.into() };
    reply(context, first, &verdict, unit);
    Ok(Outcome::of(verdict.limited))
}

/// What a call asks of one limit.
pub struct Request<'a> {
    pub key: &'a Argument,
    pub funnel: Funnel,
    /// Below 0 to give back.
    pub quantity: i64,
}

impl<'a> Request<'a> {
    /// The quota's arguments are `max_burst count period`; a quantity that is not given is 1.
    #[inline(always)]
    pub fn parse(
        key: &'a Argument,
        [max_burst, count, period]: [&Argument; 3],
        unit: Unit,
        quantity: Option<&Argument>,
        taking: Taking,
        now: Moment,
    ) -> Result<Self, Error> {
        let max_burst = zero_or_more(max_burst, "max_burst")?;
        let count = one_or_more(count, "count")?;
        let period = one_or_more(period, "period")?;
        let quantity = quantity.map_or(Ok(1), |quantity| integer(quantity, "quantity"))?;
        if taking == Taking::UpTo && quantity < 0 {
            return Err(Error::Negative("quantity"));
        }
        let funnel = Quota { max_burst, count, period, unit }.at(now)?;
        Ok(Self { key, funnel, quantity })
    }
}

/// Read by the server's own rules, but for the usual argument, which is short, for a fourth of the server's price.
#[inline(always)]
fn integer(argument: &Argument, name: &'static str) -> Result<i64, Error> {
    let short = decimal::parse_short(argument.bytes());
    short.map(i64::from).or_else(|| argument.integer()).ok_or(Error::NotAnInteger(name))
}

#[inline(always)]
fn zero_or_more(argument: &Argument, name: &'static str) -> Result<u64, Error> {
    u64::try_from(integer(argument, name)?).map_err(|_| Error::Negative(name))
}

#[inline(always)]
fn one_or_more(argument: &Argument, name: &'static str) -> Result<NonZero<u64>, Error> {
    u64::try_from(integer(argument, name)?).ok().and_then(NonZero::new).ok_or(Error::NotPositive(name))
}

/// Tells whoever listens to keyspace notifications that tokens were taken, that a call was limited, or both.
#[inline(always)]
pub fn announce(context: &Context, request: &Request, verdict: &Verdict) {
    if verdict.taken > 0 {
        context.notify(c"cl.throttle", request.key);
    }
    if verdict.limited {
        context.notify(c"cl.limited", request.key);
    }
}

/// One limit's five integers.
#[inline(always)]
pub fn reply(context: &Context, first: u64, verdict: &Verdict, unit: Unit) {
    let units = |span: Span| span.round_up(unit).cast_signed();
    context.reply_array(5);
    context.reply_integer(first.cast_signed());
    context.reply_integer(verdict.limit.cast_signed());
    context.reply_integer(verdict.remaining.cast_signed());
    context.reply_integer(verdict.retry_after.map_or(-1, units));
    context.reply_integer(units(verdict.reset_after));
}
