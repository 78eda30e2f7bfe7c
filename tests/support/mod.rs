//! Starts real servers, and provides everything else that tests share.
//!
//! The environment variable `SERVER` names the server's executable (by default `redis-server`), `MODULE` the library
//! (by default the release build), and `MODULE_CC` the compiler of the C files (by default `cc`). All three must be for
//! the same platform.

pub mod aof;
pub mod client;
pub mod clock;
pub mod cluster;
pub mod commands;
pub mod compiling;
pub mod expected;
#[path = "../../src/limiter/tests/model.rs"]
pub mod model;
pub mod needs;
pub mod pages;
pub mod ports;
pub mod programs;
pub mod random;
pub mod replication;
pub mod server;
pub mod traffic;
pub mod waiting;

use tempfile::TempDir;

pub use client::{
    Snapshot, assert_reply, command, difference, error_of, error_text, info, run, run_all, snapshot, throttle,
    transaction,
};
pub use commands::COMMANDS;
pub use compiling::{compiled, module};
pub use ports::free_port;
pub use server::{Process, Server, ends_with_the_test, executable};
pub use waiting::{PATIENCE, wait_for, wait_until};

/// The folder in which the Debian package and the container image install the library.
pub const MODULES: &str = "/usr/lib/redis/modules";

/// Returns the number in an environment variable or, if the variable is not set, the default.
pub fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect(name))
}

/// Creates a folder that is removed when it is dropped. The folder's name ends with the ID of this process, so that
/// scripts/test can remove the folders of killed runs.
pub fn new_folder() -> TempDir {
    let process = format!(".{}", std::process::id());
    tempfile::Builder::new().suffix(&process).tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}
