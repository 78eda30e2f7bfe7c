//! Rate limiting with redis-rs: `cargo add redis`.

use std::time::Duration;

use redis::{Client, Connection, RedisResult};

/// The status and the headers to answer a request with.
pub type Answer = (u16, Vec<(&'static str, i64)>);

/// A connection for one thread.
pub struct Limiter {
    pub client: Client,
    /// The longest time that a call waits for a new connection, and for the reply.
    pub timeout: Duration,
    pub connection: Option<Connection>,
}

impl Limiter {
    /// Makes a call. A quota is max_burst, count and period. A call without an answer is refused.
    pub fn throttle(&mut self, key: &str, quota: (i64, u64, u64), quantity: u32) -> Answer {
        self.call(key, quota, quantity).unwrap_or_else(|error| {
            eprintln!("Redis does not decide: {error}");
            (503, vec![("Retry-After", 1)])
        })
    }

    fn call(&mut self, key: &str, quota: (i64, u64, u64), quantity: u32) -> RedisResult<Answer> {
        // The connection of a call that fails is dropped: it may have a late reply, or lead to a server that a failover
        // has made a replica.
        let connection = self.connection.take();
        let mut connection = connection.map_or_else(|| self.client.get_connection_with_timeout(self.timeout), Ok)?;
        connection.set_read_timeout(Some(self.timeout))?;
        connection.set_write_timeout(Some(self.timeout))?;
        let (limited, limit, remaining, retry_after, reset): (bool, i64, i64, i64, i64) =
            redis::cmd("CL.THROTTLE").arg(key).arg(quota).arg(quantity).query(&mut connection)?;
        self.connection = Some(connection);
        let mut headers =
            vec![("X-RateLimit-Limit", limit), ("X-RateLimit-Remaining", remaining), ("X-RateLimit-Reset", reset)];
        if retry_after >= 0 {
            headers.push(("Retry-After", retry_after));
        }
        Ok(match (limited, limit) {
            (false, _) => (200, headers),
            (true, _) if retry_after >= 0 => (429, headers),
            // A wait of -1 never ends: the call asks for more than the limit, which may be 0.
            (true, 0) => (403, headers),
            (true, _) => (413, headers),
        })
    }
}
