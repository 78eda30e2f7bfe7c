//! What docs/moving.md and docs/comparison.md say of limiters that come from elsewhere. Those of redis_rate are in
//! upgrade.rs.

use std::process::Command;

use crate::support::{Server, error_of, now, run, throttle};

/// By the script's own line, with two servers of ours for Dragonfly and for the one that takes over.
#[test]
fn a_limiter_of_dragonfly_goes_on_where_it_was() {
    let (there, here) = (Server::start(), Server::start());
    let (mut old, mut new) = (there.connect(), here.connect());
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/moving/from_dragonfly.lua");
    let text = std::fs::read_to_string(file).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("--     ")).unwrap();
    let line = line.replace("-p 6380", &format!("-p {}", there.port)).replace("from_dragonfly.lua", file);
    let line = line.replacen("redis-cli", &format!("redis-cli -p {}", here.port), 1);
    let carry = || {
        let output = Command::new("sh").args(["-c", &line]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(carry(), "0\n", "no limiter");
    throttle(&mut old, "user123 9 5 3600 4");
    assert_eq!(carry(), "1\n");
    let read = |connection: &mut redis::Connection| -> String { run(connection, "GET user123").unwrap() };
    assert_eq!(read(&mut new), read(&mut old));
    assert_eq!(throttle(&mut new, "user123 9 5 3600 0")[..4], [0, 10, 6, -1]);
    let expires: i64 = run(&mut new, "PTTL user123").unwrap();
    let full = (read(&mut new).parse::<i64>().unwrap() - now()) / 1_000_000;
    assert!((full..=full + 10_000).contains(&expires), "{expires} ms, full again in {full}");
}

#[test]
fn what_redis_cell_takes_and_this_refuses() {
    let server = Server::start();
    let mut connection = server.connect();
    for number in ["+5", "05", "-0"] {
        let error = error_of(&mut connection, &format!("CL.THROTTLE key 15 30 60 {number}"));
        assert_eq!(error, "ERR quantity is not an integer or out of range", "{number}");
    }
    // Before September 2001, as a refund of 26 years' worth leaves it there, without an expiry.
    run::<()>(&mut connection, "SET key 954028800000000000").unwrap();
    for quantity in [1, 0, -1] {
        let error = error_of(&mut connection, &format!("CL.THROTTLE key 15 30 60 {quantity}"));
        assert_eq!(error, "ERR the key holds no rate limiter state");
    }
    run::<()>(&mut connection, "DEL key").unwrap();
    assert_eq!(throttle(&mut connection, "key 15 30 60"), [0, 16, 15, -1, 2]);
}

#[test]
fn a_refund_beyond_a_lowered_burst_is_given_back_and_a_look_tells_the_rest_of_the_debt() {
    let server = Server::start();
    let mut connection = server.connect();
    throttle(&mut connection, "key 9 1 3600 8");
    // Of a limit of 5, 8 are taken: a debt of 3.
    assert_eq!(throttle(&mut connection, "key 4 1 3600 -2")[..4], [0, 5, 0, -1]);
    assert_eq!(throttle(&mut connection, "key 4 1 3600 0")[..3], [1, 5, 0]);
    assert_eq!(throttle(&mut connection, "key 4 1 3600 -1")[..4], [0, 5, 0, -1]);
    assert_eq!(throttle(&mut connection, "key 4 1 3600 0")[..3], [0, 5, 0]);
}
