//! A call's arguments: the key of a limiter, its quotas and a quantity.

use std::num::NonZero;

use crate::decimal;
use crate::error::{CommandError, Error};
use crate::funnel::{Funnel, Moment, Quota, Taking, Unit};
use crate::funnels::{Funnels, MOST_QUOTAS};
use crate::redis::{self, Argument};

/// The words of a call with one quota: `CL.THROTTLE key max_burst count period quantity`.
pub const ONE_QUOTA: usize = 6;

/// The part of a call that is about one limiter, with its quota at this moment.
pub struct Request<'a> {
    pub key: &'a Argument,
    pub funnel: Funnel,
    /// Below 0 to give back.
    pub quantity: i64,
}

/// The moment of a call.
#[inline(always)]
pub fn now() -> Moment {
    Moment::new(redis::now()).unwrap_or(Moment::LAST)
}

impl Taking {
    /// Tells whether the quantity may be left out; it is then 1. CL.CHARGE and CL.TAKE require it.
    pub const fn takes_one_unless_told(self) -> bool {
        matches!(self, Self::AllOrNone | Self::Nothing)
    }
}

impl<'a> Request<'a> {
    /// Reads a call with one quota: the command's name, then `key max_burst count period [quantity]`.
    #[inline(always)]
    pub fn of_one_quota(arguments: &'a [Argument], taking: Taking, unit: Unit, now: Moment) -> Result<Self, Error> {
        match arguments {
            [_, key, max_burst, count, period, quantity] => {
                Self::parse(key, [max_burst, count, period], Some(quantity), taking, unit, now)
            }
            [_, key, max_burst, count, period] if taking.takes_one_unless_told() => {
                Self::parse(key, [max_burst, count, period], None, taking, unit, now)
            }
            _ => Err(Error::WrongArity),
        }
    }

    /// Reads `key`, a quota's `max_burst count period`, and a quantity.
    #[inline(always)]
    pub fn parse(
        key: &'a Argument,
        quota: [&Argument; 3],
        quantity: Option<&Argument>,
        taking: Taking,
        unit: Unit,
        now: Moment,
    ) -> Result<Self, Error> {
        let quota = parse_quota(quota, unit)?;
        let quantity = match (quantity, taking) {
            (None, _) => 1,
            (Some(quantity), Taking::AllOrNone | Taking::InAnyCase) => integer(quantity, "quantity")?,
            (Some(quantity), Taking::UpTo | Taking::Nothing) => at_least(0, quantity, "quantity")?,
        };
        Ok(Self { key, funnel: quota.at(now)?, quantity })
    }
}

/// Splits a call with several quotas into the words of a call with one, and the quotas that follow it:
/// `max_burst count period [max_burst count period ...]`.
#[inline(always)]
pub fn split_quotas(arguments: &[Argument]) -> Result<(&[Argument], &[[Argument; 3]]), Error> {
    let (one, further) = arguments.split_at_checked(ONE_QUOTA).ok_or(Error::WrongArity)?;
    match further.as_chunks() {
        (further, []) if further.len() < MOST_QUOTAS => Ok((one, further)),
        (_, []) => Err(Error::TooManyQuotas(MOST_QUOTAS)),
        _ => Err(Error::WrongArity),
    }
}

/// Reads the quotas that follow the first.
#[inline(always)]
pub fn parse_further(
    funnels: &mut Funnels,
    further: &[[Argument; 3]],
    unit: Unit,
    now: Moment,
) -> Result<(), CommandError> {
    let mut places = funnels.further_mut();
    for ([max_burst, count, period], number) in further.iter().zip(2..) {
        let Some(place) = places.next() else { break };
        let of_quota = |error| CommandError::Quota(error, number);
        let quota = parse_quota([max_burst, count, period], unit).map_err(of_quota)?;
        *place = Some(quota.at(now).map_err(|error| of_quota(error.into()))?);
    }
    Ok(())
}

#[inline(always)]
fn parse_quota([max_burst, count, period]: [&Argument; 3], unit: Unit) -> Result<Quota, Error> {
    // A max_burst of -1 is a limit of 0: the cast makes it 2^64 - 1, and the addition wraps.
    let limit = at_least(-1, max_burst, "max_burst")?.cast_unsigned().wrapping_add(1);
    let count = one_or_more(count, "count")?;
    let period = one_or_more(period, "period")?;
    Ok(Quota { limit, count, period, unit })
}

/// Reads an integer. Most are short, and are read here for a fourth of the server's price; the server reads the others.
#[inline(always)]
fn integer(argument: &Argument, name: &'static str) -> Result<i64, Error> {
    let small = decimal::parse_small(argument.bytes());
    small.map(i64::from).or_else(|| argument.integer()).ok_or(Error::NotAnInteger(name))
}

#[inline(always)]
fn at_least(least: i64, argument: &Argument, name: &'static str) -> Result<i64, Error> {
    let integer = integer(argument, name)?;
    if integer < least { Err(too_small(name, least)) } else { Ok(integer) }
}

#[inline(always)]
fn one_or_more(argument: &Argument, name: &'static str) -> Result<NonZero<u64>, Error> {
    NonZero::new(at_least(1, argument, name)?.cast_unsigned()).ok_or_else(|| too_small(name, 1))
}

/// Makes the error of an integer below `least`. It is `cold` so that the compiler puts all that leads to it out of the
/// way of a call without one.
#[cold]
fn too_small(name: &'static str, least: i64) -> Error {
    Error::TooSmall(name, least)
}
