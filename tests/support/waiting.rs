//! Waits of the tests: they count their asks, and measure no time.

use std::thread::sleep;
use std::time::Duration;

/// The time that a test waits for bytes, which take a slow machine long.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until the condition holds.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    wait_for(what, || holds().then_some(()));
}

/// Asks until there is an answer, and returns it; fails after 2,400 asks, which take two minutes or, on a slow machine,
/// longer. The pauses grow.
pub fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    for number in 0..2_400 {
        if let Some(answer) = ask() {
            return answer;
        }
        sleep(Duration::from_millis((2 + number).min(50)));
    }
    panic!("never happened: {what}");
}
