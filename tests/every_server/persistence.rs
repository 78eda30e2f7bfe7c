//! Limiters are restored from the append-only file after a crash, and from a snapshot after a reload.

use std::sync::atomic::{AtomicI64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use crate::support::aof::AOF;
use crate::support::expected::expiry;
use crate::support::traffic::under_load;
use crate::support::{Server, run, snapshot, throttle, wait_until};

/// The time in which a token comes back, in nanoseconds. No limiter becomes full again during the test.
const MINUTE: i64 = 60_000_000_000;

/// Each client takes tokens from its own limiter until the server is killed. The TAT shows exactly how many tokens were
/// taken.
#[test]
#[ignore = "slow: crashes"]
fn appendfsync_always_loses_no_acknowledged_call_in_20_crashes() {
    let mut server = Server::start_with(&[&AOF[..], &["--appendfsync", "always"]].concat());
    for crash in 0..20 {
        let taken: [AtomicI64; 4] = Default::default();
        let client = server.client();
        let call = |number| format!("limiter/{crash}/{number} 1000000 1 60");
        let ((), first) = under_load(
            taken.len(),
            |number, _| {
                let mut connection = client.get_connection().unwrap();
                throttle(&mut connection, &call(number));
                let tat: i64 = run(&mut connection, &format!("GET limiter/{crash}/{number}")).unwrap();
                let line = format!("CL.THROTTLE {}", call(number));
                while run::<[i64; 5]>(&mut connection, &line).is_ok() {
                    taken[number].fetch_add(1, Ordering::SeqCst);
                }
                tat
            },
            || {
                // Half of the crashes happen during a rewrite, or just after one.
                if crash % 2 == 0 {
                    run::<()>(&mut server.connect(), "BGREWRITEAOF").unwrap();
                }
                wait_until("all clients take tokens", || taken.iter().all(|taken| taken.load(Ordering::SeqCst) > 2));
                sleep(Duration::from_millis(crash * 5));
                server.kill();
            },
        );
        server.restart();
        let state = snapshot(&mut server.connect());
        for (number, (acknowledged, first)) in taken.map(AtomicI64::into_inner).into_iter().zip(first).enumerate() {
            let (text, expires_at) = &state[&format!("limiter/{crash}/{number}")];
            let tat: i64 = text.parse().unwrap();
            assert_eq!(i128::from(*expires_at), expiry(tat.into()), "the expiry for the TAT {tat}");
            // The reply to the last call may have been lost.
            let possible = [acknowledged, acknowledged + 1].map(|taken| first + taken * MINUTE);
            assert!(
                possible.contains(&tat),
                "the first call set the TAT to {first}, and after {acknowledged} more it is {tat}"
            );
        }
    }
    let mut connection = server.connect();
    let before = snapshot(&mut connection);
    run::<()>(&mut connection, "DEBUG RELOAD").unwrap();
    assert_eq!(snapshot(&mut connection), before, "a reload from a snapshot changed the state");
}
