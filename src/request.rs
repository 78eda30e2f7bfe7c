//! Reads the time of a call, and parses its arguments: a limiter's key, its quotas and a quantity.

use std::num::NonZero;

use crate::decimal;
use crate::error::{CommandError, Error, Place};
use crate::funnel::{Moment, Quota, Unit};
use crate::limiter::{Limiter, MAX_QUOTAS, Taking};
use crate::parameters::{self, COUNT, MAX_BURST, QUANTITY};
use crate::redis::{Argument, Parameter, clock};

/// The part of a call that concerns one limiter. Its quotas are tied to the moment of the call.
pub struct Request<'a> {
    /// The name of the limiter's key.
    pub name: &'a Argument,
    pub limiter: Limiter,
    /// The tokens to take. A negative quantity gives tokens back.
    pub quantity: i64,
}

/// Returns the current time, which is the moment of the call.
pub fn now() -> Moment {
    Moment::new_saturating(clock::now())
}

impl<'a> Request<'a> {
    /// Parses arguments of the form `key max_burst count period [quantity [max_burst count period ...]]`.
    #[inline(always)]
    pub fn parse(arguments: &'a [Argument], taking: Taking, unit: Unit, now: Moment) -> Result<Self, CommandError> {
        let (name, first, quantity, rest) = match arguments {
            [name, max_burst, count, period, quantity, rest @ ..] => {
                (name, [max_burst, count, period], Some(quantity), rest)
            }
            [name, max_burst, count, period] if parameters::is_quantity_optional(taking) => {
                (name, [max_burst, count, period], None, [].as_slice())
            }
            _ => return Err(Error::WrongArity.into()),
        };
        let rest = match rest.as_chunks() {
            (rest, []) if rest.len() < MAX_QUOTAS => rest,
            (_, []) => return Err(Error::TooManyQuotas(MAX_QUOTAS).into()),
            _ => return Err(Error::WrongArity.into()),
        };

        let first = parse_quota(first, unit)?;
        let quantity = match (quantity, taking) {
            (None, _) => 1,
            (Some(quantity), Taking::AllOrNone | Taking::Always) => integer(quantity, &QUANTITY)?,
            (Some(quantity), Taking::UpTo | Taking::Nothing) => at_least(0, quantity, &QUANTITY)?,
        };
        // Check the first quota as a whole only after parsing the quantity: errors in single arguments come first.
        let first = first.at(now)?;
        let mut quotas = Vec::with_capacity(rest.len());
        for ([max_burst, count, period], number) in rest.iter().zip(2..) {
            let quota = parse_quota([max_burst, count, period], unit).and_then(|quota| quota.at(now));
            quotas.push(quota.map_err(|reason| CommandError { reason, place: Place::Quota(number) })?);
        }
        Ok(Self { name, limiter: Limiter { first, rest: quotas }, quantity })
    }
}

#[inline(always)]
fn parse_quota([max_burst, count, period]: [&Argument; 3], unit: Unit) -> Result<Quota, Error> {
    // A max_burst of -1 becomes a limit of 0: the cast turns -1 into 2^64 - 1, and adding 1 wraps around.
    let limit = at_least(-1, max_burst, &MAX_BURST)?.cast_unsigned().wrapping_add(1);
    let count = one_or_more(count, &COUNT)?;
    let period = unit.in_nanos(one_or_more(period, parameters::period(unit))?);
    Ok(Quota { limit, count, period })
}

/// Parses an integer. Most integers are short, and parsing these here takes half as many instructions as in the server.
/// The server parses the others.
#[inline(always)]
fn integer(argument: &Argument, parameter: &Parameter) -> Result<i64, Error> {
    let small = decimal::parse_small(argument.bytes());
    small.map(i64::from).or_else(|| argument.integer()).ok_or_else(|| Error::NotAnInteger(parameter.name()))
}

#[inline(always)]
fn at_least(least: i64, argument: &Argument, parameter: &Parameter) -> Result<i64, Error> {
    let integer = integer(argument, parameter)?;
    if integer < least { Err(Error::TooSmall(parameter.name(), least)) } else { Ok(integer) }
}

#[inline(always)]
fn one_or_more(argument: &Argument, parameter: &Parameter) -> Result<NonZero<u64>, Error> {
    let integer = integer(argument, parameter)?;
    u64::try_from(integer).ok().and_then(NonZero::new).ok_or_else(|| Error::TooSmall(parameter.name(), 1))
}
