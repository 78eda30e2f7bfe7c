//! The commands' parameters. Their names appear in errors and in `COMMAND DOCS`, and their summaries in `COMMAND DOCS`.

use std::ffi::CStr;

use crate::funnel::Unit;
use crate::limiter::Taking;
use crate::redis::Parameter;

pub const KEY: Parameter = Parameter::key(c"key", c"The limiter: a user, an address, a tenant.");
pub const MAX_BURST: Parameter = Parameter::integer(c"max_burst", c"Tokens at once beyond the first. -1 or more.");
pub const COUNT: Parameter = Parameter::integer(c"count", c"Tokens that come back every period. 1 or more.");
pub const QUANTITY: Parameter = Parameter::integer(c"quantity", c"Tokens to take. 0 takes none; below 0 gives back.");

const PERIOD: &CStr = c"period";
const SECONDS: Parameter = Parameter::integer(PERIOD, c"In seconds. 1 or more.");
const MILLISECONDS: Parameter = Parameter::integer(PERIOD, c"In milliseconds. 1 or more.");

pub const fn period(unit: Unit) -> &'static Parameter {
    match unit {
        Unit::Seconds => &SECONDS,
        Unit::Milliseconds => &MILLISECONDS,
    }
}

/// Returns the parameters that describe one of several limiters: `key max_burst count period quantity`.
pub const fn group(unit: Unit) -> &'static [Parameter; 5] {
    match unit {
        Unit::Seconds => &[KEY, MAX_BURST, COUNT, SECONDS, QUANTITY],
        Unit::Milliseconds => &[KEY, MAX_BURST, COUNT, MILLISECONDS, QUANTITY],
    }
}

/// Returns the parameters of a call on one limiter: `key max_burst count period quantity [max_burst count period ...]`.
pub const fn one_limiter(taking: Taking, unit: Unit) -> [Parameter; 6] {
    let [key, quota @ .., _] = group(unit);
    let [max_burst, count, period] = *quota;
    let quantity = match taking {
        Taking::AllOrNone | Taking::Always => QUANTITY,
        Taking::UpTo => Parameter::integer(c"quantity", c"The most tokens to take. 0 takes none."),
        Taking::Nothing => Parameter::integer(c"quantity", c"Tokens that would be taken. 0 or more."),
    };
    let quantity = quantity.optional_if(is_quantity_optional(taking));
    [*key, max_burst, count, period, quantity, Parameter::repeated(c"quota", quota).optional_if(true)]
}

/// Returns whether a call may omit the quantity, which is then 1. CL.CHARGE and CL.TAKE require a quantity.
pub const fn is_quantity_optional(taking: Taking) -> bool {
    matches!(taking, Taking::AllOrNone | Taking::Nothing)
}
