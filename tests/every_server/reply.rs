//! The five integers of a reply, on a server with the system's clock.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::support::{Server, command, run, throttle};

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
fn a_quantity_is_taken_whole_or_not_at_all() {
    let server = Server::start();
    let mut connection = server.connect();
    assert_eq!(throttle(&mut connection, "key 9 1 60 4"), [0, 10, 6, -1, 240]);
    assert_eq!(throttle(&mut connection, "key 9 1 60 7"), [1, 10, 6, 60, 240]);
    assert_eq!(throttle(&mut connection, "key 9 1 60 6"), [0, 10, 0, -1, 600]);
    assert_eq!(throttle(&mut connection, "key 9 1 60"), [1, 10, 0, 60, 600]);
}

#[test]
fn a_quantity_beyond_the_limit_can_never_pass_and_has_no_retry_after() {
    let server = Server::start();
    let mut connection = server.connect();
    assert_eq!(throttle(&mut connection, "key 9 1 60 11"), [1, 10, 10, -1, 0]);
    assert_eq!(throttle(&mut connection, "key 9 1 60 9223372036854775807"), [1, 10, 10, -1, 0]);
    assert!(!run::<bool>(&mut connection, "EXISTS key").unwrap());
}

#[test]
fn a_quantity_of_zero_looks_without_taking() {
    let server = Server::start();
    let mut connection = server.connect();
    assert_eq!(throttle(&mut connection, "key 9 1 60 0"), [0, 10, 10, -1, 0]);
    assert!(!run::<bool>(&mut connection, "EXISTS key").unwrap());
    throttle(&mut connection, "key 9 1 60 4");
    let state: String = run(&mut connection, "GET key").unwrap();
    for _ in 0..3 {
        assert_eq!(throttle(&mut connection, "key 9 1 60 0"), [0, 10, 6, -1, 240]);
    }
    assert_eq!(run::<String>(&mut connection, "GET key").unwrap(), state);
}

#[test]
fn keys_are_independent() {
    let server = Server::start();
    let mut connection = server.connect();
    for key in ["one", "two", "a:{tag}:key"] {
        assert_eq!(throttle(&mut connection, &format!("{key} 0 1 60")), [0, 1, 0, -1, 60]);
        assert_eq!(throttle(&mut connection, &format!("{key} 0 1 60")), [1, 1, 0, 60, 60]);
    }
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

#[test]
#[ignore = "slow: seconds"]
fn waiting_the_whole_seconds_of_retry_after_passes() {
    let server = Server::start();
    let mut connection = server.connect();
    throttle(&mut connection, "key 2 10 3 3");
    let [limited, _, _, retry_after, _] = throttle(&mut connection, "key 2 10 3 3");
    assert_eq!((limited, retry_after), (1, 1));
    sleep(Duration::from_secs(1));
    assert_eq!(throttle(&mut connection, "key 2 10 3 3")[0], 0);
}

#[test]
#[ignore = "slow: seconds"]
fn over_time_a_limiter_lets_its_rate_through() {
    let server = Server::start();
    let mut connection = server.connect();
    // The limiter has 15 tokens, and one comes back every two seconds.
    let start = Instant::now();
    let allowed = (0..20).filter(|_| throttle(&mut connection, "textbook 14 1 2")[0] == 0).count();
    assert!(start.elapsed() < Duration::from_secs(2));
    assert_eq!(allowed, 15);

    // The limiter has 100 tokens at once and then one every 10 ms. Its burst, a second's worth, outlasts the pauses of
    // a busy machine.
    let before_first = Instant::now();
    assert_eq!(throttle(&mut connection, "steady 99 100 1 100")[0], 0);
    let after_first = Instant::now();
    let mut is_allowed = || throttle(&mut connection, "steady 99 100 1")[0] == 0;
    let mut allowed = 100;
    let before_last = loop {
        let asked = Instant::now();
        if is_allowed() {
            allowed += 1;
        } else if after_first.elapsed() > Duration::from_millis(500) {
            break asked;
        }
    };
    let least = 100 + (before_last - after_first).as_millis() / 10;
    let most = 100 + before_first.elapsed().as_millis() / 10;
    // The count may be one more or less, because the clock of `Instant` and the server's wall clock may drift apart.
    assert!((least - 1..=most + 1).contains(&allowed), "{allowed} of {least} to {most}");
}
