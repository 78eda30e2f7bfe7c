//! A call's arguments: the key of a limiter, its quotas and a quantity.

use std::num::NonZero;

use crate::decimal;
use crate::error::{CommandError, Error};
use crate::funnel::{Moment, Quota, Taking, Unit};
use crate::limiter::{Limiter, MOST_QUOTAS};
use crate::redis::{Argument, Parameter};

/// The part of a call that is about one limiter, with its quotas at this moment.
pub struct Request<'a> {
    pub key: &'a Argument,
    pub limiter: Limiter,
    /// Below 0 to give back.
    pub quantity: i64,
}

impl Taking {
    /// Tells whether the quantity may be left out; it is then 1. CL.CHARGE and CL.TAKE require it.
    const fn takes_one_unless_told(self) -> bool {
        matches!(self, Self::AllOrNone | Self::Nothing)
    }
}

impl<'a> Request<'a> {
    /// Reads `key max_burst count period [quantity [max_burst count period ...]]`.
    #[inline(always)]
    pub fn parse(arguments: &'a [Argument], taking: Taking, unit: Unit, now: Moment) -> Result<Self, CommandError> {
        let (key, first, quantity, further) = match arguments {
            [key, max_burst, count, period, quantity, further @ ..] => {
                (key, [max_burst, count, period], Some(quantity), further)
            }
            [key, max_burst, count, period] if taking.takes_one_unless_told() => {
                (key, [max_burst, count, period], None, [].as_slice())
            }
            _ => return Err(CommandError::WrongArity),
        };
        let further = match further.as_chunks() {
            (further, []) if further.len() < MOST_QUOTAS => further,
            (_, []) => return Err(Error::TooManyQuotas.into()),
            _ => return Err(CommandError::WrongArity),
        };

        let first = parse_quota(first, unit)?;
        let quantity = match (quantity, taking) {
            (None, _) => 1,
            (Some(quantity), Taking::AllOrNone | Taking::InAnyCase) => integer(quantity, "quantity")?,
            (Some(quantity), Taking::UpTo | Taking::Nothing) => at_least(0, quantity, "quantity")?,
        };
        let first = first.at(now).map_err(Error::from)?;
        let mut quotas = Vec::with_capacity(further.len());
        for ([max_burst, count, period], number) in further.iter().zip(2..) {
            let quota = parse_quota([max_burst, count, period], unit);
            let quota = quota.and_then(|quota| Ok(quota.at(now)?));
            quotas.push(quota.map_err(|error| CommandError::Quota(error, number))?);
        }
        Ok(Self { key, limiter: Limiter { first, further: quotas }, quantity })
    }
}

#[inline(always)]
fn parse_quota([max_burst, count, period]: [&Argument; 3], unit: Unit) -> Result<Quota, Error> {
    // A max_burst of -1 is a limit of 0: the cast makes it 2^64 - 1, and the addition wraps.
    let limit = at_least(-1, max_burst, "max_burst")?.cast_unsigned().wrapping_add(1);
    let count = one_or_more(count, "count")?;
    let period = one_or_more(period, "period")?;
    Ok(Quota { limit, count, period, unit })
}

/// Reads an integer. Most are short, and are read here for half of the server's price; the server reads the others.
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

/// Returns the parameters of a call on one limiter: `key max_burst count period quantity [max_burst count period ...]`
pub const fn one_limiter(taking: Taking, unit: Unit) -> [Parameter; 6] {
    let quantity = match taking {
        Taking::AllOrNone | Taking::InAnyCase => QUANTITY,
        Taking::UpTo => Parameter::integer(c"quantity", c"The most tokens to take. 0 takes none."),
        Taking::Nothing => Parameter::integer(c"quantity", c"Tokens that would be taken. 0 or more."),
    };
    let [_, max_burst, count, period, _] = *limiter(unit);
    let quotas: &[Parameter] = match unit {
        Unit::Seconds => &[MAX_BURST, COUNT, SECONDS],
        Unit::Milliseconds => &[MAX_BURST, COUNT, MILLISECONDS],
    };
    let quotas = Parameter::repeated(c"quota", quotas).optional_if(true);
    [KEY, max_burst, count, period, quantity.optional_if(taking.takes_one_unless_told()), quotas]
}

/// Returns the parameters of one limiter in a call on several.
pub const fn limiter(unit: Unit) -> &'static [Parameter; 5] {
    match unit {
        Unit::Seconds => &[KEY, MAX_BURST, COUNT, SECONDS, QUANTITY],
        Unit::Milliseconds => &[KEY, MAX_BURST, COUNT, MILLISECONDS, QUANTITY],
    }
}

const KEY: Parameter = Parameter::key(c"key", c"The limiter: a user, an address, a tenant.");
const MAX_BURST: Parameter = Parameter::integer(c"max_burst", c"Tokens at once beyond the first. -1 or more.");
const COUNT: Parameter = Parameter::integer(c"count", c"Tokens that come back every period. 1 or more.");
const SECONDS: Parameter = Parameter::integer(c"period", c"In seconds. 1 or more.");
const MILLISECONDS: Parameter = Parameter::integer(c"period", c"In milliseconds. 1 or more.");
const QUANTITY: Parameter = Parameter::integer(c"quantity", c"Tokens to take. 0 takes none, fewer give back.");
