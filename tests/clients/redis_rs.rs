//! Rate limiting with redis-rs.

use redis::{Client, ConnectionLike, RedisResult};

/// Makes a call, and returns the status and the headers to answer an HTTP request with.
pub fn throttle(
    connection: &mut impl ConnectionLike,
    key: &str,
    (max_burst, count, period): (u64, u64, u64),
    quantity: u64,
) -> RedisResult<(u16, Vec<(&'static str, i64)>)> {
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

pub fn main() -> RedisResult<()> {
    let mut connection = Client::open("redis://127.0.0.1:6379/")?.get_connection()?;
    // Three at once and one a minute; the last call asks for four.
    for quantity in [1, 1, 1, 1, 4] {
        println!("{:?}", throttle(&mut connection, "user123", (2, 1, 60), quantity)?);
    }
    Ok(())
}
