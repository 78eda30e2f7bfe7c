//! The five integers of a reply, on a server with the system's clock.

use crate::support::{Server, command, throttle};

#[test]
fn a_new_limiter_counts_down_and_then_limits() {
    let server = Server::start();
    let mut connection = server.connect();
    let calls: Vec<_> = (0..5).map(|_| throttle(&mut connection, "user123 15 30 60")).collect();
    // Each token adds 2 s to reset_after, which is rounded up; all five calls are within the first 2 s.
    assert_eq!(
        calls,
        [[0, 16, 15, -1, 2], [0, 16, 14, -1, 4], [0, 16, 13, -1, 6], [0, 16, 12, -1, 8], [0, 16, 11, -1, 10]]
    );
    for _ in 5..16 {
        assert_eq!(throttle(&mut connection, "user123 15 30 60")[0], 0);
    }
    assert_eq!(throttle(&mut connection, "user123 15 30 60"), [1, 16, 0, 2, 32]);
}

#[test]
fn a_million_a_second_keeps_its_key_and_limits() {
    let server = Server::start();
    let mut connection = server.connect();
    // The limiter is full again after 16 µs: only calls of one transaction come fast enough to be limited.
    let mut pipeline = redis::pipe();
    pipeline.atomic();
    for _ in 0..100 {
        pipeline.add_command(command("CL.THROTTLE key 15 1000000 1 16"));
    }
    let calls: Vec<[i64; 5]> = pipeline.query(&mut connection).unwrap();
    assert_eq!(calls[0], [0, 16, 0, -1, 1]);
    assert!(calls.iter().any(|&[limited, ..]| limited == 1), "100 bursts of 16 us each passed at once");
    for [limited, limit, remaining, retry_after, reset_after] in calls {
        assert_eq!(limit, 16);
        assert!((0..=16).contains(&remaining));
        assert_eq!((retry_after, reset_after), if limited == 1 { (1, 1) } else { (-1, 1) });
    }

    // A larger burst outlasts the calls: 100,000 tokens come back in 100 ms, and the key lives exactly that long.
    let (first, ttl, second): ([i64; 5], i64, [i64; 5]) = redis::pipe()
        .atomic()
        .add_command(command("CL.THROTTLE large 99999 1000000 1 100000"))
        .add_command(command("PTTL large"))
        .add_command(command("CL.THROTTLE large 99999 1000000 1 100000"))
        .query(&mut connection)
        .unwrap();
    assert_eq!(first[..2], [0, 100_000]);
    assert!(ttl > 0, "{ttl}");
    assert_eq!(second[0], 1);
}
