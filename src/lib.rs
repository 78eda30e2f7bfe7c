//! `CL.THROTTLE` for Redis and Valkey: exact rate limiting by GCRA, as a module.
//!
//! This is the table of contents: the module's name and its commands. One call reads from top to bottom in
//! `throttle.rs`, in `look.rs` if it takes nothing, or in `mthrottle.rs` for several limiters at once. What they share
//! is in `limit.rs`. A call decides by `funnel.rs`, keeps its state by `state.rs` and fails by `error.rs`. `redis/`
//! stands between them and the server.
//!
//! What a call runs through is `inline(always)`. By itself the compiler inlines no function of this size with several
//! callers, and each call would cost some 150 instructions more: 5% of a limited one.

mod counts;
mod decimal;
mod error;
mod funnel;
mod limit;
mod look;
mod mthrottle;
mod redis;
mod state;
mod throttle;

use std::ffi::c_int;

use funnel::Taking::{AllOrNone, InAnyCase, UpTo};
use funnel::Unit::{Milliseconds, Seconds};
use look::look;
use mthrottle::mthrottle;
use redis::{Access, Command, Module, Parameter, handler, module};
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

/// A command: its name and the version that brought it; whether it writes; what it calls; its arguments; what it does.
macro_rules! command {
    ($name:literal $since:literal $access:ident $call:ident($($how:ident),*)
        [$($argument:expr),*] $summary:literal) => {
        Command {
            name: $name,
            since: $since,
            access: Access::$access,
            handler: handler!(|context, arguments| $call(context, arguments, $($how),*)),
            parameters: &[$($argument),*],
            summary: $summary,
        }
    };
}

#[rustfmt::skip]
static COMMANDS: [Command; 10] = [
    command!(c"cl.throttle" c"1.0.0" ReadWrite throttle(AllOrNone, Seconds)
        [KEY, MAX_BURST, COUNT, SECONDS, QUANTITY.optional()]
        c"Takes tokens from a rate limiter, if it has that many. Times are in seconds."),
    command!(c"cl.pthrottle" c"1.0.0" ReadWrite throttle(AllOrNone, Milliseconds)
        [KEY, MAX_BURST, COUNT, MILLISECONDS, QUANTITY.optional()]
        c"Takes tokens from a rate limiter, if it has that many. Times are in milliseconds."),
    command!(c"cl.charge" c"1.1.0" ReadWrite throttle(InAnyCase, Seconds)
        [KEY, MAX_BURST, COUNT, SECONDS, QUANTITY]
        c"Takes tokens from a rate limiter in any case, if need be into debt. Times are in seconds."),
    command!(c"cl.pcharge" c"1.1.0" ReadWrite throttle(InAnyCase, Milliseconds)
        [KEY, MAX_BURST, COUNT, MILLISECONDS, QUANTITY]
        c"Takes tokens from a rate limiter in any case, if need be into debt. Times are in milliseconds."),
    command!(c"cl.take" c"1.1.0" ReadWrite throttle(UpTo, Seconds)
        [KEY, MAX_BURST, COUNT, SECONDS, AT_MOST]
        c"Takes as many tokens as a rate limiter has, up to the quantity. Times are in seconds."),
    command!(c"cl.ptake" c"1.1.0" ReadWrite throttle(UpTo, Milliseconds)
        [KEY, MAX_BURST, COUNT, MILLISECONDS, AT_MOST]
        c"Takes as many tokens as a rate limiter has, up to the quantity. Times are in milliseconds."),
    command!(c"cl.look" c"1.1.0" Read look(Seconds)
        [KEY, MAX_BURST, COUNT, SECONDS, ASKED.optional()]
        c"Tells what taking tokens from a rate limiter would reply, and takes none. Times are in seconds."),
    command!(c"cl.plook" c"1.1.0" Read look(Milliseconds)
        [KEY, MAX_BURST, COUNT, MILLISECONDS, ASKED.optional()]
        c"Tells what taking tokens from a rate limiter would reply, and takes none. Times are in milliseconds."),
    command!(c"cl.mthrottle" c"1.0.0" ReadWrite mthrottle(Seconds)
        [Parameter::repeated(c"limit", &[KEY, MAX_BURST, COUNT, SECONDS, QUANTITY])]
        c"Takes tokens from several rate limiters, if all have that many. Times are in seconds."),
    command!(c"cl.mpthrottle" c"1.1.0" ReadWrite mthrottle(Milliseconds)
        [Parameter::repeated(c"limit", &[KEY, MAX_BURST, COUNT, MILLISECONDS, QUANTITY])]
        c"Takes tokens from several rate limiters, if all have that many. Times are in milliseconds."),
];

const KEY: Parameter = Parameter::key(c"key", c"What is limited: a user, an address, a tenant.");
const MAX_BURST: Parameter = Parameter::integer(c"max_burst", c"Tokens at once beyond the first. -1 or more.");
const COUNT: Parameter = Parameter::integer(c"count", c"Tokens that come back every period. 1 or more.");
const SECONDS: Parameter = Parameter::integer(c"period", c"In seconds. 1 or more.");
const MILLISECONDS: Parameter = Parameter::integer(c"period", c"In milliseconds. 1 or more.");
const QUANTITY: Parameter = Parameter::integer(c"quantity", c"Tokens to take. 0 takes none, fewer give back.");
const AT_MOST: Parameter = Parameter::integer(c"quantity", c"The most tokens to take. 0 takes none.");
const ASKED: Parameter = Parameter::integer(c"quantity", c"Tokens that would be taken. 0 or more.");

const fn number(digits: &str) -> c_int {
    match c_int::from_str_radix(digits, 10) {
        Ok(number) => number,
        Err(_) => 0,
    }
}
