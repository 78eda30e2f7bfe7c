//! A time limit for the run, which would never end if a test hung. The test harness names each test that takes longer
//! than a minute.

use std::io::Write;
use std::process::exit;
use std::sync::Once;
use std::thread;
use std::time::Duration;

use super::setting;

/// The longest runs take minutes, and a machine may be twenty times slower.
const LIMIT_IN_SECONDS: u64 = 4 * 3_600;

/// Begins the time of the run, unless it has begun. Whatever a test waits for calls this: servers, folders and programs.
pub fn begin() {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| drop(thread::spawn(watch)));
}

/// Ends the run, and with it the servers, after the time limit.
fn watch() {
    let limit = Duration::from_secs(setting("TEST_SECONDS", LIMIT_IN_SECONDS));
    thread::sleep(limit);
    // The test harness hides what a test's thread prints.
    let line = format!("FAILED: a test hangs, after {limit:?} (TEST_SECONDS sets another limit)\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
    exit(101);
}
