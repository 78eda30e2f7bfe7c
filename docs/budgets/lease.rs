//! A lease on a hot key. A client takes tokens from the server in batches, and spends them without further calls.
//!
//! To run this file, after `cargo add redis`: `[REDIS_URL=redis://127.0.0.1:6379] [REDIS_TIMEOUT=0.1] cargo run`

use std::env::var;
use std::thread::sleep;
use std::time::{Duration, Instant};

use redis::{Client, Connection, RedisResult};

pub struct Lease {
    /// Opens a connection, for the first call and after an error.
    pub connect: Box<dyn FnMut() -> RedisResult<Connection> + Send>,
    connection: Option<Connection>,
    pub key: String,
    /// `max_burst`, count, and the period in milliseconds.
    pub quota: (u64, u64, u64),
    /// How many tokens to ask for at a time, at most 2^63 - 1. Zero counts as one.
    pub batch: u64,
    /// The longest time to keep the tokens of a batch.
    pub time: Duration,
    left: u64,
    /// When that time ends; `None` if it never does.
    ends: Option<Instant>,
    ask_again: Instant,
}

impl Lease {
    pub fn new(
        connect: impl FnMut() -> RedisResult<Connection> + Send + 'static,
        key: &str,
        quota: (u64, u64, u64),
        batch: u64,
        time: Duration,
        now: Instant,
    ) -> Self {
        let (connect, key) = (Box::new(connect), key.to_string());
        Self { connect, connection: None, key, quota, batch, time, left: 0, ends: None, ask_again: now }
    }

    /// Takes a token. Returns zero, or the time until a token is available. After an error, the caller decides
    /// whether to serve the request.
    pub fn take(&mut self, now: Instant) -> RedisResult<Duration> {
        self.end_if_over(now)?;
        if self.left == 0 {
            if now < self.ask_again {
                return Ok(self.ask_again - now);
            }
            let (taken, retry_after) = self.call("CL.PTAKE", self.batch.clamp(1, i64::MAX as u64) as i64)?;
            self.left = taken as u64;
            self.ends = now.checked_add(self.time);
            // The wait is -1 if the server had enough tokens.
            self.ask_again = now + Duration::from_millis(retry_after.max(0) as u64);
            if taken == 0 {
                return Ok(self.ask_again - now);
            }
        }
        self.left -= 1;
        Ok(Duration::ZERO)
    }

    /// Gives back unused tokens after their time. If requests may pause, call this from a timer.
    pub fn end_if_over(&mut self, now: Instant) -> RedisResult<()> {
        if self.left > 0 && self.ends.is_some_and(|ends| now >= ends) {
            // The server now has these tokens again, so an earlier wait is out of date.
            self.ask_again = now;
            self.give_back()?;
        }
        Ok(())
    }

    fn give_back(&mut self) -> RedisResult<()> {
        // Forget the tokens first: if the reply is lost, they must not be given back twice.
        let left = std::mem::take(&mut self.left);
        if left > 0 {
            self.call("CL.PTHROTTLE", -(left as i64))?;
        }
        Ok(())
    }

    fn call(&mut self, command: &str, quantity: i64) -> RedisResult<(i64, i64)> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => (self.connect)()?,
        };
        // After an error, drop the connection: it may be broken, or lead to a replica after a failover.
        let (first, _, _, retry_after, _): (i64, i64, i64, i64, i64) =
            redis::cmd(command).arg(&self.key).arg(self.quota).arg(quantity).query(&mut connection)?;
        self.connection = Some(connection);
        Ok((first, retry_after))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let _ = self.give_back();
    }
}

pub fn main() -> RedisResult<()> {
    let url = var("REDIS_URL").ok().filter(|url| !url.is_empty()).unwrap_or("redis://127.0.0.1:6379".into());
    let seconds = var("REDIS_TIMEOUT").ok().and_then(|text| text.parse().ok()).unwrap_or(0.1);
    let (client, timeout) = (Client::open(url)?, Duration::from_secs_f64(seconds));
    let connect = move || {
        let connection = client.get_connection_with_timeout(timeout)?;
        connection.set_read_timeout(Some(timeout))?;
        connection.set_write_timeout(Some(timeout))?;
        Ok(connection)
    };
    // The limiter allows a million a second, and 10,000 at once; a lease holds up to 1,000 tokens for 100 ms.
    let quota = (9_999, 1_000, 1);
    let mut lease = Lease::new(connect, "hot", quota, 1_000, Duration::from_millis(100), Instant::now());
    for number in 0..20_000 {
        loop {
            let wait = lease.take(Instant::now())?;
            if wait.is_zero() {
                break;
            }
            println!("{number} tokens so far, the next in {wait:?}");
            sleep(wait);
        }
    }
    Ok(())
}
