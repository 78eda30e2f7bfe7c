//! The load for scripts/bench --leases: decisions on one hot key, by the example client in docs/budgets.
//!
//! ```text
//! leases PORT THREADS SECONDS BATCH
//! ```
//!
//! Prints the number of decisions, all of which allow, and the seconds that they took. A lease takes BATCH tokens from
//! the server with one call. Each thread has its own lease, and reads the clock for each decision.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a measurement fails by panicking"
)]

#[allow(dead_code, reason = "main is for the reader who copies the file")]
#[path = "../../docs/budgets/lease.rs"]
mod lease;

use std::thread;
use std::time::{Duration, Instant};

use lease::Lease;

/// A quota that never limits: a token a nanosecond.
const QUOTA: (u64, u64, u64) = (9_999_999, 1_000_000, 1);
const LEASE: Duration = Duration::from_millis(100);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [port, threads, seconds, batch] = &arguments[..] else { panic!("see the head of leases.rs") };
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}/")).unwrap();
    let (threads, batch): (usize, u64) = (threads.parse().unwrap(), batch.parse().unwrap());
    let start = Instant::now();
    let end = start + Duration::from_secs_f64(seconds.parse().unwrap());
    let decide = || {
        let client = client.clone();
        let mut lease = Lease::new(move || client.get_connection(), "hot", QUOTA, batch, LEASE, start);
        let mut decisions = 0_u64;
        loop {
            let now = Instant::now();
            if now >= end {
                return decisions;
            }
            assert!(lease.take(now).unwrap().is_zero(), "limited");
            decisions += 1;
        }
    };
    let decisions: u64 = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(decide)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    println!("{decisions} {:.6}", start.elapsed().as_secs_f64());
}
