//! The example of redis-rs as a program.

#![allow(clippy::unwrap_used, reason = "a program of the tests ends by panicking")]

use std::env::var;
use std::time::Duration;

#[path = "../../docs/clients/redis_rs.rs"]
mod redis_rs;

fn main() {
    let client = redis::Client::open(format!("redis://127.0.0.1:{}/", var("REDIS_PORT").unwrap())).unwrap();
    let timeout = Duration::from_secs_f64(var("TIMEOUT").unwrap().parse().unwrap());
    let mut limiter = redis_rs::Limiter { client, timeout, connection: None };
    for quantity in [1, 1, 1, 1, 4] {
        let (status, headers) = limiter.throttle("user123", (2, 1, 60), quantity);
        let headers: Vec<_> = headers.into_iter().map(|(name, value)| format!("{name}: {value}")).collect();
        println!("{status} {}", headers.join(", "));
    }
}
