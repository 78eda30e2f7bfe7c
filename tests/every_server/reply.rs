//! The integers of each command's replies: those of replies.txt, and those at a million calls a second.

use redis::Value;

use crate::support::clock::{Clock, SECOND, START};
use crate::support::{Server, command, run};

#[test]
fn the_replies_are_those_of_the_table() {
    for part in include_str!("replies.txt").split("\n\n").skip(1) {
        let (clock, server) = Clock::start(START);
        let (mut connection, mut now) = (server.connect(), START);
        for line in part.lines().filter(|line| !line.starts_with('#')) {
            if let Some(seconds) = line.strip_prefix("+ ") {
                now += (seconds.trim_end_matches(" s").parse::<f64>().unwrap() * SECOND as f64) as i64;
                clock.set(now);
                continue;
            }
            let (call, expected) = line.split_once("   ->   ").unwrap();
            let reply: Value = run(&mut connection, call).unwrap_or_else(|error| panic!("{call}: {error}"));
            assert_eq!(integers(&reply).join(" "), expected, "{call}");
        }
    }
}

/// Returns the integers of a reply, those of a list within it as well.
fn integers(reply: &Value) -> Vec<String> {
    match reply {
        Value::Array(replies) => replies.iter().flat_map(integers).collect(),
        Value::Int(integer) => vec![integer.to_string()],
        other => panic!("{other:?} is no integer"),
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
