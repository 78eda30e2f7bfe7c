//! Waits that count attempts instead of measuring time.

use std::thread::sleep;
use std::time::Duration;

/// The timeout for a test's reads from a connection: long enough even on a slow machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until the condition holds.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    wait_for(what, || holds().then_some(()));
}

/// Calls `ask` until it returns an answer, and returns that answer. Fails after 2,400 attempts, which take at least two
/// minutes.
pub fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    for number in 0..2_400 {
        if let Some(answer) = ask() {
            return answer;
        }
        sleep(Duration::from_millis((2 + number).min(50)));
    }
    panic!("never happened: {what}");
}
