//! The examples that answer HTTP, attacked over many connections: of 200 requests at once, as many are let through as the
//! limiter has tokens, also on a busy machine, and after the server was gone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{available_parallelism, scope};
use std::time::{Duration, Instant};

use crate::support::Server;
use crate::support::eventually;
use crate::support::examples::{self, Example, Http};

const REQUESTS: usize = 200;
/// The limiter of each route of an example, `GET /` that fails open and `POST /login` that fails closed: three at once
/// and one a minute.
const LIMIT: usize = 3;
/// An example's wait for its server: as short as a busy machine's server can keep. Its own is a tenth of a second.
const TIMEOUT: &str = "0.5";
/// A request's, of a server that is gone.
const BOUND: Duration = Duration::from_secs(20);

/// A row is the name of a function that gives an example in all its versions.
macro_rules! table {
    ($($example:ident)*) => {
        $(#[test]
        fn $example() {
            examples::$example().for_each(|example| lets_through_its_limit_however_many_come_at_once(&example));
        })*
    };
}

table! {
    http_server
    flask
    fastapi
}

/// The program and the server have just been started, each time.
fn lets_through_its_limit_however_many_come_at_once(example: &Example) {
    // One at a time: the machine is to be as busy as the test makes it.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for others in [0, 2, 4] {
        let mut server = Server::start();
        let example = &example.with("TIMEOUT", TIMEOUT);
        let http = Http::start(example, server.port);
        beside(others, || {
            assert_eq!(let_through(&http), LIMIT, "{example:?}, beside {others}");
            server.kill();
            for (request, status) in [("GET /", 200), ("POST /login", 503)] {
                let start = Instant::now();
                assert_eq!(http.send(request).0, status, "{example:?}, {request}, gone");
                assert!(start.elapsed() < BOUND, "{example:?}, {request}: {:?}", start.elapsed());
            }
        });
        if others == 0 {
            server.restart();
            let limits = || http.send("POST /login").0 != 503;
            assert!(eventually(BOUND, || limits().then_some(())).is_some(), "{example:?}, back");
            assert_eq!(let_through(&http), LIMIT, "{example:?}, back");
        }
    }
}

/// How many of the requests are answered with 200. The others are limited, or find no place.
fn let_through(http: &Http) -> usize {
    let statuses = http.at_once(REQUESTS, "GET / HTTP/1.0\r\n\r\n");
    assert!(statuses.iter().all(|status| [200, 429, 503].contains(status)), "{statuses:?}");
    statuses.iter().filter(|status| **status == 200).count()
}

/// Does it beside that many threads for each processor that always want it.
fn beside(others: usize, work: impl FnOnce()) {
    let done = AtomicBool::new(false);
    scope(|scope| {
        for _ in 0..others * available_parallelism().unwrap().get() {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    std::hint::spin_loop()
                }
            });
        }
        // A failure has to end the threads as well.
        let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        done.store(true, Ordering::Relaxed);
        worked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}
