//! `CL.THROTTLE` for Redis and Valkey: exact rate limiting by GCRA, as a module.
//!
//! This is the table of contents: the module's name and its commands. One call reads from top to bottom in
//! `throttle.rs`, or in `mthrottle.rs` for several limits at once; it decides by `funnel.rs`, keeps its state by
//! `state.rs` and fails by `error.rs`. `redis.rs` stands between them and the server.

mod error;
mod funnel;
mod mthrottle;
mod redis;
mod state;
mod throttle;

use std::ffi::{CStr, c_int};

use redis::{Command, command};

/// As in `MODULE LIST`.
const NAME: &CStr = c"redis-cell";
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// `VERSION` as `MODULE LIST` shows it: 10203 is 1.2.3.
const VERSION_NUMBER: c_int = number(env!("CARGO_PKG_VERSION_MAJOR")) * 10000
    + number(env!("CARGO_PKG_VERSION_MINOR")) * 100
    + number(env!("CARGO_PKG_VERSION_PATCH"));

const FLAGS: &CStr = c"write deny-oom fast";

/// Name, function, flags; first key, last key, step.
const COMMANDS: &[Command] = &[
    // CL.THROTTLE key max_burst count period [quantity]
    command!(c"cl.throttle", throttle::cl_throttle, FLAGS, 1, 1, 1),
    // CL.PTHROTTLE key max_burst count period [quantity]
    command!(c"cl.pthrottle", throttle::cl_pthrottle, FLAGS, 1, 1, 1),
    // CL.MTHROTTLE key max_burst count period quantity [key max_burst count period quantity ...]
    command!(c"cl.mthrottle", mthrottle::cl_mthrottle, FLAGS, 1, -1, 5),
];

const fn number(digits: &str) -> c_int {
    match c_int::from_str_radix(digits, 10) {
        Ok(number) => number,
        Err(_) => 0,
    }
}
