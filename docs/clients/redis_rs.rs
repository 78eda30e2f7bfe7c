//! Rate limiting with redis-rs. To run this file, after `cargo add redis`, with TLS `--features tls-native-tls`:
//! `[REDIS_URL=redis://127.0.0.1:6379] [REDIS_TIMEOUT=0.1] cargo run`

use std::env::var;
use std::time::Duration;

use redis::Value::{self, Int};
use redis::{Client, Connection, ErrorKind, RedisResult};

/// The status and the headers to answer a request with.
type Answer = (u16, Vec<(&'static str, i64)>);

/// A connection for one thread. A call waits no longer than `timeout` for a new one, and for the reply.
struct Limiter {
    client: Client,
    timeout: Duration,
    connection: Option<Connection>,
}

impl Limiter {
    /// Makes a call. A quota is max_burst, count and period. A call without an answer is refused.
    fn throttle(&mut self, key: &str, quota: (i64, u64, u64), quantity: u32) -> Answer {
        self.call(key, quota, quantity).unwrap_or_else(|error| {
            eprintln!("Redis did not decide: {error}");
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
        let reply: Vec<Value> = redis::cmd("CL.THROTTLE").arg(key).arg(quota).arg(quantity).query(&mut connection)?;
        // redis-rs itself would take texts for integers.
        let [Int(limited), Int(limit), Int(remaining), Int(retry_after), Int(reset)] = reply[..] else {
            return Err((ErrorKind::UnexpectedReturnType, "the reply has another shape").into());
        };
        self.connection = Some(connection);
        let headers =
            vec![("X-RateLimit-Limit", limit), ("X-RateLimit-Remaining", remaining), ("X-RateLimit-Reset", reset)];
        Ok(match (limited, limit) {
            (0, _) => (200, headers),
            _ if retry_after >= 0 => (429, [headers, vec![("Retry-After", retry_after)]].concat()),
            // A wait of -1 never ends: the call asks for more than the limit, which may be 0.
            (_, 0) => (403, headers),
            _ => (413, headers),
        })
    }
}

fn main() -> RedisResult<()> {
    let url = var("REDIS_URL").ok().filter(|url| !url.is_empty()).unwrap_or("redis://127.0.0.1:6379".into());
    let seconds = var("REDIS_TIMEOUT").ok().and_then(|text| text.parse().ok()).unwrap_or(0.1);
    let client = Client::open(url)?;
    let mut limiter = Limiter { client, timeout: Duration::from_secs_f64(seconds), connection: None };
    // The limiter allows three at once and one a minute; the last call asks for four tokens.
    for quantity in [1, 1, 1, 1, 4] {
        let (status, headers) = limiter.throttle("user123", (2, 1, 60), quantity);
        let headers: Vec<_> = headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        println!("{status} {}", headers.join(", "));
    }
    Ok(())
}
