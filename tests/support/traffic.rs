//! Runs concurrent clients.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Runs clients in threads while `body` runs, and returns the results of `body` and of the clients. Each client gets
/// its number, and a function that it must call before each turn. Once that function returns false, the client has to
/// end. The function also pauses, so that all clients together take only 2,000 turns a second and the machine is not
/// overloaded.
pub fn under_load<T, R: Send>(
    clients: usize,
    client: impl Fn(usize, &dyn Fn() -> bool) -> R + Sync,
    body: impl FnOnce() -> T,
) -> (T, Vec<R>) {
    let pause = Duration::from_micros(500) * u32::try_from(clients).unwrap();
    let over = AtomicBool::new(false);
    let more = || {
        thread::sleep(pause);
        !over.load(Ordering::Relaxed)
    };
    thread::scope(|scope| {
        let (client, more) = (&client, &more);
        let threads: Vec<_> = (0..clients).map(|number| scope.spawn(move || client(number, more))).collect();
        let answer = catch_unwind(AssertUnwindSafe(body));
        // Make the threads end even if the body panics.
        over.store(true, Ordering::Relaxed);
        let answer = answer.unwrap_or_else(|panic| resume_unwind(panic));
        (answer, threads.into_iter().map(|thread| thread.join().unwrap()).collect())
    })
}
