//! Runs concurrent clients.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Runs clients in threads while `body` runs, and returns the results of `body` and of the clients. Each client gets
/// its number, and a function to use as the condition of its loop: the client must end when the function returns false.
/// The function also pauses, so that all clients together run at most 2,000 iterations a second and do not overload
/// the machine.
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
