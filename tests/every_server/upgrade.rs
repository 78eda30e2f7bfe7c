//! Moves from another limiter to this module, back from it, and from one library of it to the next.

use std::fs;
use std::process::Command;

use crate::support::aof::AOF;
use crate::support::expected::expiry;
use crate::support::needs::needs;
use crate::support::pages::command_of;
use crate::support::programs::output;
use crate::support::replication::{catch_up, replicate};
use crate::support::{Server, module, new_folder, now, redis_cell, run, snapshot, throttle};

const MINUTE: i64 = 60_000_000_000;

#[test]
fn state_written_by_redis_cell_goes_on_to_the_nanosecond_whatever_its_ttl() {
    let server = Server::start();
    let mut connection = server.connect();
    for spent in 1..5 {
        // The key's expiry is redis-cell's, rounded down to whole milliseconds, or one that another program has set.
        let left = spent * 60_000;
        for given in [format!("PX {left}"), format!("PX {}", 2 * left), String::new()] {
            let tat = now() + spent * MINUTE + 123;
            run::<()>(&mut connection, &format!("SET key {tat} {given}")).unwrap();
            assert_eq!(throttle(&mut connection, "key 4 1 60 0")[..3], [0, 5, 5 - spent], "{given}");
            assert_eq!(throttle(&mut connection, "key 4 1 60")[..3], [0, 5, 4 - spent], "{given}");
            let new = tat + MINUTE;
            let state = snapshot(&mut connection);
            let (text, expires_at) = &state[&b"key"[..]];
            assert_eq!(*text, new.to_string().into_bytes(), "{given}");
            assert_eq!(i128::from(*expires_at), expiry(new.into()), "{given}");
        }
    }
}

/// redis-cell parses the string as an `i64`, the TAT in nanoseconds.
#[test]
fn redis_cell_could_read_the_state_that_is_written_here() {
    let server = Server::start();
    let mut connection = server.connect();
    let mut expected = Vec::new();
    for (funnel, increment) in
        [("4 1 60", MINUTE), ("0 7 3600", 514_285_714_285), ("9 3 100000000", 33_333_333_333_333_333)]
    {
        let key = funnel.replace(' ', "/");
        let before = now() + increment;
        throttle(&mut connection, &format!("{key} {funnel}"));
        expected.push((key, before..=now() + increment));
    }
    let state = snapshot(&mut connection);
    for (key, range) in expected {
        let (text, expires_at) = &state[key.as_bytes()];
        assert!(text.iter().all(u8::is_ascii_digit) && text[0] != b'0', "{text:?}");
        let tat: i64 = str::from_utf8(text).unwrap().parse().unwrap();
        assert!(range.contains(&tat), "{tat} is not in {range:?}");
        assert!(*expires_at >= tat / 1_000_000);
    }
}

/// The replica gets the calls themselves, limited ones too: this is how redis-cell replicates.
#[test]
fn a_replica_of_a_redis_cell_primary_takes_its_calls() {
    let primary = Server::start_bare(&["--loadmodule", redis_cell().to_str().unwrap()]);
    let replica = Server::start();
    replicate(&replica, &primary);
    let mut connection = primary.connect();
    for arguments in [
        "key 4 1 3600",
        "key 4 1 3600 2",
        "key 4 1 3600 5",
        "packets 999 1 3600 900",
        "packets 999 1 3600 -500",
        "other 15 30 86400 5",
    ] {
        throttle(&mut connection, arguments);
    }
    catch_up(&replica, &primary);
    let mut connection = replica.connect();
    run::<()>(&mut connection, "REPLICAOF NO ONE").unwrap();
    assert_eq!(throttle(&mut connection, "key 4 1 3600")[..3], [0, 5, 1]);
    assert_eq!(throttle(&mut connection, "other 15 30 86400 0")[..3], [0, 16, 11]);
    assert_eq!(throttle(&mut connection, "packets 999 1 3600 0")[..3], [0, 1000, 600]);
}

#[test]
fn a_limiter_of_redis_rate_goes_on_where_it_was() {
    const YEAR_2017: f64 = 1_483_228_800.0;
    needs!("redis-tools");
    let server = Server::start();
    let mut connection = server.connect();
    let line = command_of("from_redis_rate.lua", server.port);
    let carry = || output(Command::new("sh").args(["-c", &line]));
    assert_eq!(carry(), "0\n", "no limiter");

    // The limiter has 5 tokens a minute and a burst of 10; 4 are taken.
    let moment = now() as f64 / 1e9 - YEAR_2017 + 48.0;
    run::<()>(&mut connection, &format!("SET rate:user123 {moment} EX 48")).unwrap();
    assert_eq!(carry(), "1\n");
    assert_eq!(throttle(&mut connection, "user123 9 5 60 0"), [0, 10, 6, -1, 48]);
    let expires: i64 = run(&mut connection, "PTTL user123").unwrap();
    assert!((46_000..=48_001).contains(&expires), "{expires}");
    // The old key stays: other programs may still use it.
    let old: String = run(&mut connection, "GET rate:user123").unwrap();
    assert_eq!(old, moment.to_string());
    // A second carry gives back no tokens that were taken here.
    throttle(&mut connection, "user123 9 5 60 2");
    assert_eq!(carry(), "0\n");
    assert_eq!(throttle(&mut connection, "user123 9 5 60 0")[2], 4);
}

/// The test replaces the file as `install` and `mv` do. `cp` over the file would change the code that the server is
/// running.
#[test]
fn a_library_is_put_in_the_place_of_the_one_in_use_and_a_restart_takes_it() {
    let folder = new_folder();
    let library = folder.path().join("libredis_cell.so");
    fs::copy(module(), &library).unwrap();
    let mut server = Server::start_bare(&[&["--loadmodule", library.to_str().unwrap()], &AOF[..]].concat());
    let mut connection = server.connect();
    throttle(&mut connection, "key 4 1 3600");

    let new = folder.path().join("new");
    fs::copy(module(), &new).unwrap();
    fs::rename(&new, &library).unwrap();
    // Some of these calls run code that has not run before.
    for call in
        ["CL.PTHROTTLE key 4 1 3600000", "CL.MTHROTTLE key 4 1 3600 1 other 4 1 3600 1", "CL.THROTTLE key 4 1 3600 9"]
    {
        run::<redis::Value>(&mut connection, call).unwrap();
    }
    run::<redis::Value>(&mut connection, "CL.THROTTLE key 4 1 x").unwrap_err();
    run::<String>(&mut connection, "INFO redis-cell").unwrap();

    server.restart();
    let mut connection = server.connect();
    assert_eq!(throttle(&mut connection, "key 4 1 3600")[..3], [0, 5, 1]);
}
