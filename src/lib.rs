//! `CL.THROTTLE` for Redis and Valkey: exact rate limiting by GCRA, as a module.
//!
//! This is the table of contents: the module's name and its commands. One call reads from top to bottom in
//! `throttle.rs`, in `look.rs` if it takes nothing, or in `mthrottle.rs` for several limiters at once. They share
//! `request.rs`, a call's arguments, and `reply.rs`, its integers. `limiter.rs` decides a call by all quotas of a
//! limiter, and `funnel.rs` has the rule for one of them. `state.rs` reads and writes the state, and `error.rs` has the
//! errors. `redis/` stands between these files and the server.
//!
//! Functions that are marked `inline(always)` have several callers, which are the commands and the numbers of quotas
//! that a call is compiled for. The compiler alone would inline few of them, and a call would cost a tenth more.

mod counts;
mod decimal;
mod error;
mod funnel;
mod limiter;
mod look;
mod mthrottle;
mod redis;
mod reply;
mod request;
mod state;
mod throttle;

use std::ffi::c_int;

use funnel::Taking::{AllOrNone, InAnyCase, UpTo};
use funnel::Unit::{Milliseconds, Seconds};
use redis::{Command, Module, command, module};

static MODULE: Module = Module {
    name: c"redis-cell",
    version: env!("CARGO_PKG_VERSION"),
    version_number: number(env!("CARGO_PKG_VERSION_MAJOR")) * 10000
        + number(env!("CARGO_PKG_VERSION_MINOR")) * 100
        + number(env!("CARGO_PKG_VERSION_PATCH")),
    commands: &COMMANDS,
};
module!(MODULE);

/// The commands: name; the version that brought it; the file with its call, and how the call differs from others of
/// that file; its summary.
#[rustfmt::skip]
static COMMANDS: [Command; 10] = [
    command!(c"cl.throttle" c"1.0.0" throttle(AllOrNone, Seconds),
        c"Takes tokens from a rate limiter, if it has that many. Times are in seconds."),
    command!(c"cl.pthrottle" c"1.0.0" throttle(AllOrNone, Milliseconds),
        c"Takes tokens from a rate limiter, if it has that many. Times are in milliseconds."),
    command!(c"cl.charge" c"1.0.0" throttle(InAnyCase, Seconds),
        c"Takes tokens from a rate limiter in any case, if necessary into debt. Times are in seconds."),
    command!(c"cl.pcharge" c"1.0.0" throttle(InAnyCase, Milliseconds),
        c"Takes tokens from a rate limiter in any case, if necessary into debt. Times are in milliseconds."),
    command!(c"cl.take" c"1.0.0" throttle(UpTo, Seconds),
        c"Takes as many tokens as a rate limiter has, up to the quantity. Times are in seconds."),
    command!(c"cl.ptake" c"1.0.0" throttle(UpTo, Milliseconds),
        c"Takes as many tokens as a rate limiter has, up to the quantity. Times are in milliseconds."),
    command!(c"cl.look" c"1.0.0" look(Seconds),
        c"Tells whether a rate limiter has that many tokens, and takes none. Times are in seconds."),
    command!(c"cl.plook" c"1.0.0" look(Milliseconds),
        c"Tells whether a rate limiter has that many tokens, and takes none. Times are in milliseconds."),
    command!(c"cl.mthrottle" c"1.0.0" mthrottle(Seconds),
        c"Takes tokens from several rate limiters, if all have that many. Times are in seconds."),
    command!(c"cl.mpthrottle" c"1.0.0" mthrottle(Milliseconds),
        c"Takes tokens from several rate limiters, if all have that many. Times are in milliseconds."),
];

const fn number(digits: &str) -> c_int {
    match c_int::from_str_radix(digits, 10) {
        Ok(number) => number,
        Err(_) => 0,
    }
}
