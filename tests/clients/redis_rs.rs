//! Rate limiting with redis-rs.

use std::time::Duration;

use redis::{Client, Connection, ConnectionLike, RedisResult};

/// The status and the headers to answer an HTTP request with.
pub type Answer = (u16, Vec<(&'static str, i64)>);

/// Makes a call.
pub fn throttle(
    connection: &mut impl ConnectionLike,
    key: &str,
    (max_burst, count, period): (u64, u64, u64),
    quantity: u64,
) -> RedisResult<Answer> {
    let (limited, limit, remaining, retry_after, reset_after): (bool, i64, i64, i64, i64) =
        redis::cmd("CL.THROTTLE").arg(key).arg(max_burst).arg(count).arg(period).arg(quantity).query(connection)?;
    let mut headers =
        vec![("X-RateLimit-Limit", limit), ("X-RateLimit-Remaining", remaining), ("X-RateLimit-Reset", reset_after)];
    // -1 where the call was allowed, and where it asks for more than the limit and never will be.
    if retry_after >= 0 {
        headers.push(("Retry-After", retry_after));
    }
    Ok((if limited { 429 } else { 200 }, headers))
}

/// A thread's connection, which decides in time also where the server does not answer.
pub struct Limiter {
    client: Client,
    /// How long a call waits for the server.
    timeout: Duration,
    /// What a call without an answer decides: allowed if it fails open, refused if not.
    open: bool,
    connection: Option<Connection>,
}

impl Limiter {
    pub fn new(client: Client, timeout: Duration, open: bool) -> Self {
        Self { client, timeout, open, connection: None }
    }

    pub fn throttle(&mut self, key: &str, quota: (u64, u64, u64), quantity: u64) -> Answer {
        self.ask(key, quota, quantity).unwrap_or_else(|error| {
            eprintln!("no limits, failing {}: {error}", if self.open { "open" } else { "closed" });
            if self.open { (200, vec![]) } else { (503, vec![("Retry-After", 1)]) }
        })
    }

    fn ask(&mut self, key: &str, quota: (u64, u64, u64), quantity: u64) -> RedisResult<Answer> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.client.get_connection_with_timeout(self.timeout)?,
        };
        connection.set_read_timeout(Some(self.timeout))?;
        connection.set_write_timeout(Some(self.timeout))?;
        let answer = throttle(&mut connection, key, quota, quantity)?;
        // After an error, the next call connects anew.
        self.connection = Some(connection);
        Ok(answer)
    }
}

pub fn main() -> RedisResult<()> {
    let mut limiter = Limiter::new(Client::open("redis://127.0.0.1:6379/")?, Duration::from_millis(100), true);
    // Three at once and one a minute; the last call asks for four.
    for quantity in [1, 1, 1, 1, 4] {
        println!("{:?}", limiter.throttle("user123", (2, 1, 60), quantity));
    }
    Ok(())
}
