//! What the commands share: the arguments of one limiter, its announcements, and the five integers of its reply.

use std::num::NonZero;

use crate::decimal;
use crate::error::Error;
use crate::funnel::{Funnel, Moment, Quota, Span, Taking, Unit, Verdict};
use crate::redis::{Argument, Context};

/// What a call asks of one limiter.
pub struct Request<'a> {
    pub key: &'a Argument,
    pub funnel: Funnel,
    /// Below 0 to give back.
    pub quantity: i64,
}

impl<'a> Request<'a> {
    /// Of a command on one limiter: its name, then `key max_burst count period [quantity]`. A quantity has to be given
    /// to commands that take up to it or in any case; to the others, none is 1.
    #[inline(always)]
    pub fn of_one(arguments: &'a [Argument], taking: Taking, unit: Unit, now: Moment) -> Result<Self, Error> {
        let optional = matches!(taking, Taking::AllOrNone | Taking::Nothing);
        match arguments {
            [_, key, max_burst, count, period, quantity] => {
                Self::parse(key, [max_burst, count, period], Some(quantity), taking, unit, now)
            }
            [_, key, max_burst, count, period] if optional => {
                Self::parse(key, [max_burst, count, period], None, taking, unit, now)
            }
            _ => Err(Error::WrongArity),
        }
    }

    /// The quota's arguments are `max_burst count period`; a quantity that is not given is 1.
    #[inline(always)]
    pub fn parse(
        key: &'a Argument,
        [max_burst, count, period]: [&Argument; 3],
        quantity: Option<&Argument>,
        taking: Taking,
        unit: Unit,
        now: Moment,
    ) -> Result<Self, Error> {
        // -1 and one more is 0.
        let limit = at_least(-1, max_burst, "max_burst")?.cast_unsigned().wrapping_add(1);
        let count = one_or_more(count, "count")?;
        let period = one_or_more(period, "period")?;
        let quantity = match (quantity, taking) {
            (None, _) => 1,
            (Some(quantity), Taking::AllOrNone | Taking::InAnyCase) => integer(quantity, "quantity")?,
            (Some(quantity), Taking::UpTo | Taking::Nothing) => at_least(0, quantity, "quantity")?,
        };
        let funnel = Quota { limit, count, period, unit }.at(now)?;
        Ok(Self { key, funnel, quantity })
    }
}

/// The usual argument is short, and read here for a fourth of the server's price; others by the server's own rules.
#[inline(always)]
fn integer(argument: &Argument, name: &'static str) -> Result<i64, Error> {
    let small = decimal::parse_small(argument.bytes());
    small.map(i64::from).or_else(|| argument.integer()).ok_or(Error::NotAnInteger(name))
}

#[inline(always)]
fn at_least(least: i64, argument: &Argument, name: &'static str) -> Result<i64, Error> {
    let integer = integer(argument, name)?;
    if integer < least { Err(Error::TooSmall(name, least)) } else { Ok(integer) }
}

#[inline(always)]
fn one_or_more(argument: &Argument, name: &'static str) -> Result<NonZero<u64>, Error> {
    NonZero::new(at_least(1, argument, name)?.cast_unsigned()).ok_or(Error::TooSmall(name, 1))
}

/// Keyspace notifications: tokens were taken, the call was limited, or both.
#[inline(always)]
pub fn announce(context: &Context, request: &Request, verdict: &Verdict) {
    if verdict.taken > 0 {
        context.notify(c"cl.throttle", request.key);
    }
    if verdict.limited {
        context.notify(c"cl.limited", request.key);
    }
}

/// One limiter's five integers, of which commands differ in the first.
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
