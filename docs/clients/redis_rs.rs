//! Rate limiting with redis-rs, on any connection: a cluster's `ClusterConnection`, too. To run this file, copy it over
//! the `main.rs` of a new crate: `cargo add redis`.

use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::{Client, Connection, ConnectionLike, RedisResult};

/// The status and the headers to answer an HTTP request with.
pub type Answer = (u16, Vec<(&'static str, u64)>);

/// Makes a call.
pub fn throttle(
    connection: &mut impl ConnectionLike,
    key: &str,
    (max_burst, count, period): (u64, u64, u64),
    quantity: u64,
) -> RedisResult<Answer> {
    // The server has an error for a larger quantity, and a call that fails open would be allowed.
    let quantity = quantity.min(i64::MAX as u64);
    let (limited, limit, remaining, retry_after, reset_after): (bool, u64, u64, i64, u64) =
        redis::cmd("CL.THROTTLE").arg(key).arg(max_burst).arg(count).arg(period).arg(quantity).query(connection)?;
    let mut headers =
        vec![("X-RateLimit-Limit", limit), ("X-RateLimit-Remaining", remaining), ("X-RateLimit-Reset", reset_after)];
    // The wait is -1 if the call was allowed, or if it asks for more than the limit and will never be allowed.
    if let Ok(retry_after) = u64::try_from(retry_after) {
        headers.push(("Retry-After", retry_after));
    }
    let status = match (limited, retry_after) {
        (false, _) => 200,
        (true, 0..) => 429,
        (true, _) => 413,
    };
    Ok((status, headers))
}

/// The decision on a call without a reply: allowed or refused.
#[derive(Clone, Copy, Debug)]
pub enum Fail {
    Open,
    Closed,
}

/// The connections of a process, from which each thread borrows one for a call.
pub struct Pool {
    client: Client,
    /// The longest time that a call waits for a new connection, and for the reply.
    timeout: Duration,
    /// The free connections. `None` stands for a lost one; the call that borrows it connects again.
    free: Mutex<Vec<Option<Connection>>>,
    returned: Condvar,
    /// How many calls in a row got no reply, and when the last call was made.
    unanswered: Mutex<(usize, Instant)>,
}

impl Pool {
    const SIZE: usize = 20;
    /// The longest time that a call waits for a free connection.
    const WAIT: Duration = Duration::from_secs(1);

    /// Makes all connections at the start, and not in the first burst.
    pub fn new(client: Client, timeout: Duration) -> Self {
        let log = |error: &_| eprintln!("no server yet: {error}");
        let connect = |_| client.get_connection_with_timeout(timeout).inspect_err(log).ok().map(Some);
        let mut free: Vec<_> = (0..Self::SIZE).map_while(connect).collect();
        free.resize_with(Self::SIZE, || None);
        let unanswered = Mutex::new((0, Instant::now()));
        Self { client, timeout, free: Mutex::new(free), returned: Condvar::new(), unanswered }
    }

    /// Makes a call like `|connection| throttle(connection, "user123", (2, 1, 60), 1)` within the time limits. A call
    /// that gets no free connection is refused, even if it fails open: it does not show that the server is gone.
    pub fn ask(&self, fail: Fail, call: impl FnOnce(&mut Connection) -> RedisResult<Answer>) -> Answer {
        let refused = (503, vec![("Retry-After", 1)]);
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut free, _) = self
            .returned
            .wait_timeout_while(free, Self::WAIT, |free| free.is_empty())
            .unwrap_or_else(PoisonError::into_inner);
        let Some(connection) = free.pop() else { return refused };
        drop(free);
        let mut borrowed = Borrowed { pool: self, connection: None };
        match self.ask_on(connection, call) {
            Ok((answer, connection)) => {
                borrowed.connection = Some(connection);
                self.unanswered().0 = 0;
                answer
            }
            Err(error) => {
                eprintln!("no limits, failing {fail:?}: {error}");
                self.unanswered().0 = if error.is_io_error() { self.unanswered().0 + 1 } else { 0 };
                if error.is_io_error() || error.code() == Some("READONLY") {
                    // The other connections were most likely lost too, or lead to a server that has become a replica.
                    self.free.lock().unwrap_or_else(PoisonError::into_inner).fill_with(|| None);
                }
                if matches!(fail, Fail::Open) { (200, vec![]) } else { refused }
            }
        }
    }

    fn ask_on(
        &self,
        connection: Option<Connection>,
        call: impl FnOnce(&mut Connection) -> RedisResult<Answer>,
    ) -> RedisResult<(Answer, Connection)> {
        self.check_that_it_answers()?;
        let mut connection = connection.map_or_else(|| self.client.get_connection_with_timeout(self.timeout), Ok)?;
        connection.set_read_timeout(Some(self.timeout))?;
        connection.set_write_timeout(Some(self.timeout))?;
        Ok((call(&mut connection)?, connection))
    }

    /// Fails if the server is silent: it has answered none of as many calls as there are connections. Only one call per
    /// `timeout` still asks such a server.
    fn check_that_it_answers(&self) -> io::Result<()> {
        let mut unanswered = self.unanswered();
        if unanswered.0 >= Self::SIZE && unanswered.1.elapsed() < self.timeout {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the server is silent"));
        }
        unanswered.1 = Instant::now();
        Ok(())
    }

    fn unanswered(&self) -> MutexGuard<'_, (usize, Instant)> {
        self.unanswered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in the pool, which is free again when it is dropped, even by a call that panics.
struct Borrowed<'a> {
    pool: &'a Pool,
    connection: Option<Connection>,
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        self.pool.free.lock().unwrap_or_else(PoisonError::into_inner).push(self.connection.take());
        self.pool.returned.notify_one();
    }
}

pub fn main() -> RedisResult<()> {
    let pool = Pool::new(Client::open("redis://127.0.0.1:6379/")?, Duration::from_millis(100));
    // The limiter allows three at once and one a minute; the last call asks for four tokens.
    for quantity in [1, 1, 1, 1, 4] {
        println!("{:?}", pool.ask(Fail::Open, |connection| throttle(connection, "user123", (2, 1, 60), quantity)));
    }
    Ok(())
}
