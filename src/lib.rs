//! `CL.THROTTLE` for Redis and Valkey: exact rate limiting by GCRA, as a module.
//!
//! This is the table of contents: the module's name and its commands. One call reads from top to bottom in
//! `throttle.rs`, in `look.rs` if it takes nothing, or in `mthrottle.rs` for several limiters at once. They share
//! `request.rs`, a call's arguments, and `reply.rs`, its integers. A call decides by `funnel.rs`, or by `funnels.rs`
//! for several quotas. `state.rs` reads and writes its state, and `error.rs` has its errors. `redis/` stands between
//! these files and the server.
//!
//! The functions on a call's path are `inline(always)`: the compiler would not inline functions of this size with
//! several callers, and each call would cost some 150 instructions more, 5% of a limited one.

mod counts;
mod decimal;
mod error;
mod funnel;
mod funnels;
mod look;
mod mthrottle;
mod redis;
mod reply;
mod request;
mod state;
mod throttle;

use std::ffi::c_int;

use funnel::Taking::{self, AllOrNone, InAnyCase, Nothing, UpTo};
use funnel::Unit::{self, Milliseconds, Seconds};
use look::look;
use mthrottle::mthrottle;
use redis::{Command, Module, Parameter, command, module};
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

/// The commands: name; the version that brought it; whether it writes; the call; its parameters; its summary.
#[rustfmt::skip]
static COMMANDS: [Command; 10] = [
    command!(c"cl.throttle" c"1.0.0" ReadWrite throttle(AllOrNone, Seconds) one_limiter(AllOrNone, Seconds),
        c"Takes tokens from a rate limiter, if it has that many. Times are in seconds."),
    command!(c"cl.pthrottle" c"1.0.0" ReadWrite throttle(AllOrNone, Milliseconds) one_limiter(AllOrNone, Milliseconds),
        c"Takes tokens from a rate limiter, if it has that many. Times are in milliseconds."),
    command!(c"cl.charge" c"1.1.0" ReadWrite throttle(InAnyCase, Seconds) one_limiter(InAnyCase, Seconds),
        c"Takes tokens from a rate limiter in any case, if necessary into debt. Times are in seconds."),
    command!(c"cl.pcharge" c"1.1.0" ReadWrite throttle(InAnyCase, Milliseconds) one_limiter(InAnyCase, Milliseconds),
        c"Takes tokens from a rate limiter in any case, if necessary into debt. Times are in milliseconds."),
    command!(c"cl.take" c"1.1.0" ReadWrite throttle(UpTo, Seconds) one_limiter(UpTo, Seconds),
        c"Takes as many tokens as a rate limiter has, up to the quantity. Times are in seconds."),
    command!(c"cl.ptake" c"1.1.0" ReadWrite throttle(UpTo, Milliseconds) one_limiter(UpTo, Milliseconds),
        c"Takes as many tokens as a rate limiter has, up to the quantity. Times are in milliseconds."),
    command!(c"cl.look" c"1.1.0" Read look(Seconds) one_limiter(Nothing, Seconds),
        c"Tells what taking tokens from a rate limiter would reply, and takes none. Times are in seconds."),
    command!(c"cl.plook" c"1.1.0" Read look(Milliseconds) one_limiter(Nothing, Milliseconds),
        c"Tells what taking tokens from a rate limiter would reply, and takes none. Times are in milliseconds."),
    command!(c"cl.mthrottle" c"1.0.0" ReadWrite mthrottle(Seconds) [limiters(Seconds)],
        c"Takes tokens from several rate limiters, if all have that many. Times are in seconds."),
    command!(c"cl.mpthrottle" c"1.1.0" ReadWrite mthrottle(Milliseconds) [limiters(Milliseconds)],
        c"Takes tokens from several rate limiters, if all have that many. Times are in milliseconds."),
];

/// `key max_burst count period quantity [max_burst count period ...]`
const fn one_limiter(taking: Taking, unit: Unit) -> [Parameter; 6] {
    let quantity = match taking {
        AllOrNone | InAnyCase => QUANTITY,
        UpTo => Parameter::integer(c"quantity", c"The most tokens to take. 0 takes none."),
        Nothing => Parameter::integer(c"quantity", c"Tokens that would be taken. 0 or more."),
    };
    let quotas: &[Parameter] = match unit {
        Seconds => &[MAX_BURST, COUNT, SECONDS],
        Milliseconds => &[MAX_BURST, COUNT, MILLISECONDS],
    };
    let period = match unit {
        Seconds => SECONDS,
        Milliseconds => MILLISECONDS,
    };
    let quotas = Parameter::repeated(c"quota", quotas).optional_if(true);
    [KEY, MAX_BURST, COUNT, period, quantity.optional_if(taking.takes_one_unless_told()), quotas]
}

/// `key max_burst count period quantity [key … quantity ...]`
const fn limiters(unit: Unit) -> Parameter {
    Parameter::repeated(
        c"limiter",
        match unit {
            Seconds => &[KEY, MAX_BURST, COUNT, SECONDS, QUANTITY],
            Milliseconds => &[KEY, MAX_BURST, COUNT, MILLISECONDS, QUANTITY],
        },
    )
}

const KEY: Parameter = Parameter::key(c"key", c"The limiter: a user, an address, a tenant.");
const MAX_BURST: Parameter = Parameter::integer(c"max_burst", c"Tokens at once beyond the first. -1 or more.");
const COUNT: Parameter = Parameter::integer(c"count", c"Tokens that come back every period. 1 or more.");
const SECONDS: Parameter = Parameter::integer(c"period", c"In seconds. 1 or more.");
const MILLISECONDS: Parameter = Parameter::integer(c"period", c"In milliseconds. 1 or more.");
const QUANTITY: Parameter = Parameter::integer(c"quantity", c"Tokens to take. 0 takes none, fewer give back.");

const fn number(digits: &str) -> c_int {
    match c_int::from_str_radix(digits, 10) {
        Ok(number) => number,
        Err(_) => 0,
    }
}
