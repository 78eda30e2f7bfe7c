//! Tests the replies and errors that are listed in replies.txt.

use redis::Value;

use crate::support::clock::{Clock, SECOND, START};
use crate::support::{Server, error_text, run};

#[test]
fn each_call_in_replies_txt_gets_its_reply() {
    let (mut clock, mut _server, mut connection) = Clock::start(START);
    let (mut nanoseconds, mut part) = (0, "");
    // Skip the description of the file, which ends at the first empty line.
    let lines = include_str!("replies.txt").lines().enumerate().skip_while(|(_, line)| !line.is_empty());
    for (number, line) in lines {
        if let Some(heading) = line.strip_prefix("# ") {
            part = heading;
        } else if line.is_empty() {
            (clock, _server, connection) = Clock::start(START);
            nanoseconds = 0;
        } else if let Some(seconds) = line.strip_prefix("+ ") {
            nanoseconds += (seconds.trim_end_matches(" s").parse::<f64>().unwrap() * SECOND as f64) as i128;
            clock.shift((nanoseconds / i128::from(SECOND)) as i64);
            clock.set(START + (nanoseconds % i128::from(SECOND)) as i64);
        } else {
            let (call, expected) = line.split_once("   ->   ").unwrap();
            let reply = run::<Value>(&mut connection, call);
            let reply = reply.map_or_else(|error| error_text(&error), |reply| integers(&reply).join(" "));
            // Redis 6.2 repeats the command's name with the caller's capitalization.
            let is_right = reply.to_lowercase() == expected.to_lowercase();
            assert!(is_right, "replies.txt:{}, {part:?}: {call} gets {reply}, not {expected}", number + 1);
        }
    }
}

#[test]
fn both_protocols_get_an_array_of_integers() {
    let server = Server::start();
    for protocol in ["resp2", "resp3"] {
        let address = format!("redis://127.0.0.1:{}/?protocol={protocol}", server.port);
        let mut connection = redis::Client::open(address).unwrap().get_connection().unwrap();
        let reply: Value = run(&mut connection, "CL.THROTTLE key 4 1 60 0").unwrap();
        assert_eq!(reply, Value::Array([0, 5, 5, -1, 0].map(Value::Int).to_vec()));
    }
}

/// Returns the integers of a reply, including those of nested arrays.
fn integers(reply: &Value) -> Vec<String> {
    match reply {
        Value::Array(replies) => replies.iter().flat_map(integers).collect(),
        Value::Int(integer) => vec![integer.to_string()],
        other => panic!("{other:?} is not an integer"),
    }
}
