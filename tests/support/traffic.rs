//! Clients that call while something happens to the server, and the mixture of calls that they make.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use redis::{Connection, Value};

use super::{Snapshot, command, run, snapshot, throttle, wait_until};

/// Runs `client` in threads while `body` runs, and returns what both returned. A client calls the given function before
/// each turn, and ends when the function returns false. The function pauses first, so that all clients together take
/// 2,000 turns a second: more turns would only keep the machine busy.
pub fn under_load<T, R: Send>(
    clients: usize,
    client: impl Fn(usize, &dyn Fn() -> bool) -> R + Sync,
    body: impl FnOnce() -> T,
) -> (T, Vec<R>) {
    let pause = Duration::from_micros(500) * u32::try_from(clients).unwrap();
    let paced = |number, more: &dyn Fn() -> bool| {
        client(number, &|| {
            thread::sleep(pause);
            more()
        })
    };
    under_full_load(clients, paced, body)
}

/// Runs the clients without a pause, for a test that needs a call at one particular moment.
pub fn under_full_load<T, R: Send>(
    clients: usize,
    client: impl Fn(usize, &dyn Fn() -> bool) -> R + Sync,
    body: impl FnOnce() -> T,
) -> (T, Vec<R>) {
    /// Sets the flag when dropped, so that the threads end even if the body panics.
    struct Over<'a>(&'a AtomicBool);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    let over = AtomicBool::new(false);
    let (client, over) = (&client, &over);
    thread::scope(|scope| {
        let threads: Vec<_> =
            (0..clients).map(|number| scope.spawn(move || client(number, &|| !over.load(Ordering::Relaxed)))).collect();
        let answer = {
            let _over = Over(over);
            body()
        };
        let answers = threads.into_iter().map(|thread| thread.join().unwrap());
        (answer, answers.collect())
    })
}

/// Runs `body` for all items at the same time: tests wait for servers more than they compute.
pub fn side_by_side<T: Send>(items: impl IntoIterator<Item = T>, body: impl Fn(T) + Sync) {
    let body = &body;
    thread::scope(|scope| {
        // Name each thread after the test: a panic prints the name.
        let new = || thread::Builder::new().name(thread::current().name().unwrap_or_default().to_string());
        let threads: Vec<_> =
            items.into_iter().map(|item| new().spawn_scoped(scope, move || body(item)).unwrap()).collect();
        for thread in threads {
            // Pass the panic on with its message.
            thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
    });
}

pub const MISTAKES: [&str; 4] =
    ["CL.THROTTLE new 4 1 0", "CL.THROTTLE new 4 1 x", "CL.THROTTLE list 4 1 60", "CL.THROTTLE text 4 1 60"];

/// Makes a list and a string that is no limiter's state.
pub fn spoil(connection: &mut Connection) {
    run::<()>(connection, "RPUSH list 1").unwrap();
    run::<()>(connection, "SET text hello").unwrap();
}

/// Makes one of several kinds of call; the turn picks which. Keys that expire within the test start with `short`.
pub fn mixed_call(connection: &mut Connection, client: usize, turn: usize) {
    let new = format!("new/{client}/{turn}");
    let short = format!("short/{client}/{turn}");
    let own = format!("own/{client}");
    let shared = format!("shared/{}", turn % 50);
    match turn % 11 {
        0 => throttle(connection, &format!("{new} 4 1 60"))[0],
        1 => throttle(connection, &format!("{own} 1000000 7 60 3"))[0],
        2 => throttle(connection, "full 0 1 3600")[0],
        3 => throttle(connection, &format!("{shared} 99 1 60 0"))[0],
        4 => {
            // Two of the mistakes need the keys that `spoil` makes.
            let _ = run::<Value>(connection, MISTAKES[turn % 4]);
            0
        }
        5 => redis::pipe()
            .atomic()
            .add_command(command(&format!("CL.THROTTLE {shared} 99 7 60")))
            .add_command(command("CL.THROTTLE full 0 1 3600"))
            .add_command(command(&format!("CL.THROTTLE {short} 99 1000 1 99")))
            .add_command(command(&format!("CL.THROTTLE {own} 1000000 7 60")))
            .query::<[[i64; 5]; 4]>(connection)
            .unwrap()[0][0],
        6 => {
            let script = "redis.call('CL.THROTTLE', KEYS[2], 0, 1, 3600)
                          redis.call('CL.THROTTLE', KEYS[3], 1000000, 7, 60)
                          return redis.call('CL.THROTTLE', KEYS[1], 999, 1, 60, 3)";
            redis::cmd("EVAL").arg(script).arg(&["3", &shared, "full", &own]).query::<[i64; 5]>(connection).unwrap()[0]
        }
        7 => {
            let mut pipeline = redis::pipe();
            for other in 0..20 {
                pipeline.add_command(command(&format!("CL.THROTTLE shared/{other} 49 1 60")));
            }
            pipeline.query::<Vec<[i64; 5]>>(connection).unwrap()[0][0]
        }
        8 => run::<[i64; 5]>(connection, &format!("CL.PTHROTTLE {own} 1000000 7 60000")).unwrap()[0],
        9 => {
            let call = format!("CL.MTHROTTLE {own} 1000000 7 60 2 {shared} 99 7 60 1 {new}/m 4 1 60 1");
            let reply: Vec<Value> = run(connection, &call).unwrap();
            redis::from_redis_value_ref(&reply[0]).unwrap()
        }
        // A limiter that expires at once: a million tokens a second.
        _ => throttle(connection, &format!("{short} 15 1000000 1"))[0],
    };
}

/// Waits until [`mixed_call`] has left this many more limiters, however slow the machine.
pub fn wait_for_more(limiters: usize, connection: &mut Connection) {
    let mut count = || run::<Vec<Value>>(connection, "KEYS new/*").unwrap().len();
    let enough = count() + limiters;
    wait_until("more limiters", || count() >= enough);
}

/// Returns every limiter of [`mixed_call`] that outlives the test.
pub fn lasting(connection: &mut Connection) -> Snapshot {
    let mut snapshot = snapshot(connection);
    snapshot.retain(|key, _| !key.starts_with(b"short"));
    assert!(snapshot.len() > 100, "only {} keys", snapshot.len());
    snapshot
}
