//! `CL.THROTTLE` for Redis and Valkey: exact rate limiting by GCRA, as a module.
//!
//! This is the table of contents: the module's name and its commands. One call reads from top to bottom in
//! `throttle.rs`, or in `mthrottle.rs` for several limits at once; it decides by `funnel.rs`, keeps its state by
//! `state.rs` and fails by `error.rs`. `redis/` stands between them and the server.
//!
//! What a call runs through is `inline(always)`. By itself the compiler inlines no function of this size with several
//! callers, and each call would cost some 150 instructions more: 5% of a limited one.

mod counts;
mod decimal;
mod error;
mod funnel;
mod mthrottle;
mod redis;
mod state;
mod throttle;

use std::ffi::c_int;

use funnel::{Taking, Unit};
use mthrottle::mthrottle;
use redis::{Command, Module, Parameter, handler, module};
use throttle::throttle;

static MODULE: Module = Module {
    name: c"redis-cell",
    version: env!("CARGO_PKG_VERSION"),
    version_number: number(env!("CARGO_PKG_VERSION_MAJOR")) * 10000
        + number(env!("CARGO_PKG_VERSION_MINOR")) * 100
        + number(env!("CARGO_PKG_VERSION_PATCH")),
    commands: &COMMANDS,
};
module!(MODULE);

static COMMANDS: [Command; 8] = [
    // CL.THROTTLE key max_burst count period [quantity]
    Command {
        name: c"cl.throttle",
        handler: handler!(|context, arguments| throttle(context, arguments, Taking::AllOrNone, Unit::Seconds)),
        since: c"1.0.0",
        summary: c"Takes tokens from a rate limiter, if it has that many. Times are in seconds.",
        complexity: c"O(1)",
        parameters: &[KEY, MAX_BURST, COUNT, SECONDS, QUANTITY.optional()],
    },
    // CL.PTHROTTLE key max_burst count period [quantity]
    Command {
        name: c"cl.pthrottle",
        handler: handler!(|context, arguments| throttle(context, arguments, Taking::AllOrNone, Unit::Milliseconds)),
        since: c"1.0.0",
        summary: c"Takes tokens from a rate limiter, if it has that many. Times are in milliseconds.",
        complexity: c"O(1)",
        parameters: &[KEY, MAX_BURST, COUNT, MILLISECONDS, QUANTITY.optional()],
    },
    // CL.CHARGE key max_burst count period quantity
    Command {
        name: c"cl.charge",
        handler: handler!(|context, arguments| throttle(context, arguments, Taking::InAnyCase, Unit::Seconds)),
        since: c"1.1.0",
        summary: c"Takes tokens from a rate limiter in any case, if need be into debt. Times are in seconds.",
        complexity: c"O(1)",
        parameters: &[KEY, MAX_BURST, COUNT, SECONDS, QUANTITY],
    },
    // CL.PCHARGE key max_burst count period quantity
    Command {
        name: c"cl.pcharge",
        handler: handler!(|context, arguments| throttle(context, arguments, Taking::InAnyCase, Unit::Milliseconds)),
        since: c"1.1.0",
        summary: c"Takes tokens from a rate limiter in any case, if need be into debt. Times are in milliseconds.",
        complexity: c"O(1)",
        parameters: &[KEY, MAX_BURST, COUNT, MILLISECONDS, QUANTITY],
    },
    // CL.TAKE key max_burst count period quantity
    Command {
        name: c"cl.take",
        handler: handler!(|context, arguments| throttle(context, arguments, Taking::UpTo, Unit::Seconds)),
        since: c"1.1.0",
        summary: c"Takes as many tokens as a rate limiter has, up to the quantity. Times are in seconds.",
        complexity: c"O(1)",
        parameters: &[KEY, MAX_BURST, COUNT, SECONDS, AT_MOST],
    },
    // CL.PTAKE key max_burst count period quantity
    Command {
        name: c"cl.ptake",
        handler: handler!(|context, arguments| throttle(context, arguments, Taking::UpTo, Unit::Milliseconds)),
        since: c"1.1.0",
        summary: c"Takes as many tokens as a rate limiter has, up to the quantity. Times are in milliseconds.",
        complexity: c"O(1)",
        parameters: &[KEY, MAX_BURST, COUNT, MILLISECONDS, AT_MOST],
    },
    // CL.MTHROTTLE key max_burst count period quantity [key max_burst count period quantity ...]
    Command {
        name: c"cl.mthrottle",
        handler: handler!(|context, arguments| mthrottle(context, arguments, Unit::Seconds)),
        since: c"1.0.0",
        summary: c"Takes tokens from several rate limiters, if all have that many. Times are in seconds.",
        complexity: c"O(N log N), N being the number of limiters",
        parameters: &[Parameter::repeated(c"limit", &[KEY, MAX_BURST, COUNT, SECONDS, QUANTITY])],
    },
    // CL.MPTHROTTLE key max_burst count period quantity [key max_burst count period quantity ...]
    Command {
        name: c"cl.mpthrottle",
        handler: handler!(|context, arguments| mthrottle(context, arguments, Unit::Milliseconds)),
        since: c"1.1.0",
        summary: c"Takes tokens from several rate limiters, if all have that many. Times are in milliseconds.",
        complexity: c"O(N log N), N being the number of limiters",
        parameters: &[Parameter::repeated(c"limit", &[KEY, MAX_BURST, COUNT, MILLISECONDS, QUANTITY])],
    },
];

const KEY: Parameter = Parameter::key(c"key", c"What is limited: a user, an address, a tenant.");
const MAX_BURST: Parameter = Parameter::integer(c"max_burst", c"Tokens at once beyond the first. 0 or more.");
const COUNT: Parameter = Parameter::integer(c"count", c"Tokens that come back every period. 1 or more.");
const SECONDS: Parameter = Parameter::integer(c"period", c"In seconds. 1 or more.");
const MILLISECONDS: Parameter = Parameter::integer(c"period", c"In milliseconds. 1 or more.");
const QUANTITY: Parameter =
    Parameter::integer(c"quantity", c"Tokens to take. 0 looks without taking, fewer give back.");
const AT_MOST: Parameter = Parameter::integer(c"quantity", c"The most tokens to take. 0 looks without taking.");

const fn number(digits: &str) -> c_int {
    match c_int::from_str_radix(digits, 10) {
        Ok(number) => number,
        Err(_) => 0,
    }
}
