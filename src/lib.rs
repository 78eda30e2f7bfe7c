//! A module for Redis and Valkey: exact rate limiting with GCRA, through `CL.THROTTLE` and related commands.
//!
//! This file is the table of contents: it lists the module's commands. `throttle.rs` handles a call on one limiter,
//! `look.rs` a call that only reads, and `mthrottle.rs` a call on several limiters. All three use `request.rs`, which
//! parses the arguments listed in `parameters.rs`, and `reply.rs`, which sends the reply. `limiter.rs` applies a call
//! to all quotas of a limiter, and `funnel.rs` contains the rule for one quota. `state.rs` reads and writes a limiter's
//! state, and `error.rs` lists the errors. `redis/` is the layer between these files and the server.
//!
//! A function marked `inline(always)` is called from several commands. Without the attribute, the compiler would inline
//! few of these functions, and a call would take 10% more instructions.

mod decimal;
mod error;
mod funnel;
mod limiter;
mod look;
mod mthrottle;
mod parameters;
mod redis;
mod reply;
mod request;
mod state;
mod throttle;

use funnel::Unit::{Milliseconds, Seconds};
use limiter::Taking::{AllOrNone, Always, UpTo};
use redis::{Command, Module, command, module};

static MODULE: Module = Module::new(c"redis-cell", env!("CARGO_PKG_VERSION"), &COMMANDS);
module!(MODULE);

/// The module's commands. `call` names the file that handles a command, with the arguments that distinguish the command
/// from the others in that file.
#[rustfmt::skip]
static COMMANDS: [Command; 10] = [
    command!(name: c"cl.throttle", since: c"1.0.0", call: throttle(AllOrNone, Seconds),
        summary: c"Takes tokens from a rate limiter, if it has that many. Times are in seconds."),
    command!(name: c"cl.pthrottle", since: c"1.0.0", call: throttle(AllOrNone, Milliseconds),
        summary: c"Takes tokens from a rate limiter, if it has that many. Times are in milliseconds."),
    command!(name: c"cl.charge", since: c"1.0.0", call: throttle(Always, Seconds),
        summary: c"Always takes the tokens, going into debt if necessary. Times are in seconds."),
    command!(name: c"cl.pcharge", since: c"1.0.0", call: throttle(Always, Milliseconds),
        summary: c"Always takes the tokens, going into debt if necessary. Times are in milliseconds."),
    command!(name: c"cl.take", since: c"1.0.0", call: throttle(UpTo, Seconds),
        summary: c"Takes as many tokens as a rate limiter has, up to the quantity. Times are in seconds."),
    command!(name: c"cl.ptake", since: c"1.0.0", call: throttle(UpTo, Milliseconds),
        summary: c"Takes as many tokens as a rate limiter has, up to the quantity. Times are in milliseconds."),
    command!(name: c"cl.look", since: c"1.0.0", call: look(Seconds),
        summary: c"Returns whether a rate limiter has that many tokens, and takes none. Times are in seconds."),
    command!(name: c"cl.plook", since: c"1.0.0", call: look(Milliseconds),
        summary: c"Returns whether a rate limiter has that many tokens, and takes none. Times are in milliseconds."),
    command!(name: c"cl.mthrottle", since: c"1.0.0", call: mthrottle(Seconds),
        summary: c"Takes tokens from several rate limiters, if all have that many. Times are in seconds."),
    command!(name: c"cl.mpthrottle", since: c"1.0.0", call: mthrottle(Milliseconds),
        summary: c"Takes tokens from several rate limiters, if all have that many. Times are in milliseconds."),
];
