//! Rate limiting with redis-cell-rs, which has types for the limit and for the answer.

use redis::{Client, ConnectionLike, RedisResult};
use redis_cell_rs::{Cmd, Key, Policy, Verdict};

/// Makes a call, and returns the status and the headers to answer an HTTP request with. `Pool` in redis_rs.rs has the
/// connection, bounds the time, and decides on a call without a reply.
pub fn throttle(
    connection: &mut impl ConnectionLike,
    key: &str,
    policy: &Policy,
) -> RedisResult<(u16, Vec<(&'static str, u64)>)> {
    if policy.apply > policy.burst.saturating_add(1) {
        // The crate fails on the reply to a call for more than the limit, and `Pool` would let a failed call through.
        return Ok((413, vec![("X-RateLimit-Limit", policy.burst as u64 + 1)]));
    }
    let key = Key::from(key);
    let verdict: Verdict = redis::Cmd::from(Cmd::new(&key, policy)).query(connection)?;
    let headers = |total: usize, remaining: usize, reset_after: u64| {
        vec![
            ("X-RateLimit-Limit", total as u64),
            ("X-RateLimit-Remaining", remaining as u64),
            ("X-RateLimit-Reset", reset_after),
        ]
    };
    Ok(match verdict {
        Verdict::Allowed(of) => (200, headers(of.total, of.remaining, of.reset_after)),
        Verdict::Blocked(of) => {
            let mut headers = headers(of.total, of.remaining, of.reset_after);
            headers.push(("Retry-After", of.retry_after));
            (429, headers)
        }
    })
}

pub fn main() -> RedisResult<()> {
    let mut connection = Client::open("redis://127.0.0.1:6379/")?.get_connection()?;
    // The limiter allows three at once and one a minute.
    let policy = Policy::from_tokens_per_minute(1).max_burst(2);
    for _ in 0..4 {
        println!("{:?}", throttle(&mut connection, "user123", &policy)?);
    }
    Ok(())
}
