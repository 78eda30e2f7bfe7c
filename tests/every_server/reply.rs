//! The integers of each command's replies, and its errors, as replies.txt has them.

use redis::Value;

use crate::support::clock::{Clock, SECOND, START};
use crate::support::{error_text, run};

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
            let reply = run::<Value>(&mut connection, call);
            let reply = reply.map_or_else(|error| error_text(&error), |reply| integers(&reply).join(" "));
            // Redis 6.2 writes the command in the caller's spelling.
            assert_eq!(reply.to_lowercase(), expected.to_lowercase(), "{call}");
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
