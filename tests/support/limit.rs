//! A time limit for each test: a test that hangs is named and fails the run, which would otherwise never end.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::exit;
use std::sync::{Mutex, Once};
use std::thread;
use std::time::{Duration, Instant};

use super::setting;

/// The longest test, an attack of 200,000 calls, takes three minutes, and a machine may be twenty times slower.
const LIMIT_IN_SECONDS: u64 = 3_600;

/// The running tests, and when each began.
static RUNNING: Mutex<BTreeMap<String, Instant>> = Mutex::new(BTreeMap::new());

/// A running test, until its thread ends. `None` for a thread that a test has started, which has no name.
struct Running(Option<String>);

thread_local! {
    static THIS: Running = Running::begin();
}

/// Begins the time of the test that runs in this thread, unless it has begun. Whatever a test waits for calls this:
/// servers, folders and programs.
pub fn begin() {
    THIS.with(|_| ());
}

impl Running {
    fn begin() -> Self {
        static WATCH: Once = Once::new();
        WATCH.call_once(|| drop(thread::spawn(watch)));
        let name = thread::current().name().map(String::from);
        if let Some(name) = &name {
            RUNNING.lock().unwrap().insert(name.clone(), Instant::now());
        }
        Self(name)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(name) = &self.0 {
            RUNNING.lock().unwrap().remove(name);
        }
    }
}

/// Ends the run, and with it the servers, if a test takes too long.
fn watch() {
    let limit = Duration::from_secs(setting("TEST_SECONDS", LIMIT_IN_SECONDS));
    loop {
        thread::sleep(Duration::from_secs(1));
        let running = RUNNING.lock().unwrap();
        if let Some((name, _)) = running.iter().find(|(_, began)| began.elapsed() > limit) {
            let line = format!("{name} FAILED: it hangs, after {limit:?} (TEST_SECONDS sets another limit)\n");
            let _ = std::io::stderr().write_all(line.as_bytes());
            exit(101);
        }
    }
}
