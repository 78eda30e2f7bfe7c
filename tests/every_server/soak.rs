//! Under load, the server's memory does not grow, and 50 concurrent clients get exactly a limiter's burst and rate.
//!
//! `SOAK_ROUNDS` sets the number of rounds in the first test, and `FAIRNESS_CALLS` the number of calls at each rate in
//! the second.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};

use redis::{Connection, ConnectionLike, Value};

use crate::support::clock::SECOND;
use crate::support::needs::{FAST, needs};
use crate::support::replication::{SETTINGS, replicate};
use crate::support::traffic::under_load;
use crate::support::{COMMANDS, Server, assert_reply, command, info, run, setting, wait_until};

#[test]
#[ignore = "slow: load"]
fn under_a_long_mixed_load_memory_does_not_grow() {
    needs!(FAST);
    let (server, mut connection) = Server::start().connected();
    let rounds = setting("SOAK_ROUNDS", 10_000);
    // The first rounds warm up the server's own tables and the allocator.
    soak(&mut connection, rounds / 4);
    let before = memory(&server, &mut connection);
    soak(&mut connection, rounds);
    let growth = (memory(&server, &mut connection) - before) >> 10;
    // Even without a leak, the server's own tables grow a little: by up to 90 KiB, however many rounds there are.
    assert!(growth < 256, "the server's memory has grown by {growth} KiB in {rounds} rounds");
}

/// In each round, calls every command, a script, and a command with a wrong argument, both on a new limiter and on keys
/// that hold other values. Another limiter expires. All rounds use the same few keys, so that a leak shows in the
/// server's memory.
fn soak(connection: &mut Connection, rounds: u64) {
    let mut pipeline = redis::pipe();
    for line in ["DEL new list", "SET text hello", "RPUSH list 1", "CL.PTHROTTLE expires 0 1 1"] {
        pipeline.add_command(command(line));
    }
    for key in ["new", "text", "list"] {
        let calls = COMMANDS.iter().flat_map(|command| command.calls(key));
        let script = format!("EVAL return(redis.pcall('CL.THROTTLE',KEYS[1],9,1,1)) 1 {key}");
        for call in calls.chain([script, format!("CL.THROTTLE {key} 9 1 x")]) {
            pipeline.add_command(command(&call));
        }
    }
    let (packed, count) = (pipeline.get_packed_pipeline(), pipeline.len());
    for _ in 0..rounds {
        let replies = connection.req_packed_commands(&packed, 0, count).unwrap();
        assert!(replies.iter().any(|reply| matches!(reply, Value::Array(_))), "no call was answered: {replies:?}");
    }
}

/// Deletes all keys, and returns the server's resident memory afterwards, in bytes.
fn memory(server: &Server, connection: &mut Connection) -> i64 {
    run::<()>(connection, "FLUSHALL SYNC").unwrap();
    // Make the allocator return the freed memory to the system.
    run::<()>(connection, "MEMORY PURGE").unwrap();
    let statm = fs::read_to_string(format!("/proc/{}/statm", server.pid())).unwrap();
    let pages: i64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[test]
#[ignore = "slow: load"]
fn fifty_clients_get_exactly_the_burst_and_the_rate_through_a_promotion() {
    needs!(FAST);
    let calls = setting("FAIRNESS_CALLS", 3_000);
    for rate in [1, 100, 10_000, 100_000] {
        let servers = [Server::start_with(&SETTINGS), Server::start_with(&SETTINGS)];
        // The limiter holds a thousand seconds' worth of tokens, and starts with one second's worth. It must never be
        // full, because a full limiter gets no more tokens back.
        let (limit, opening) = (rate * 1_000, rate * 999);
        let call = |name: &str, tokens: i64| format!("{name} key {} {rate} 1 {tokens}", limit - 1);
        let mut connection = servers[0].connect();
        assert_reply(&mut connection, &call("CL.THROTTLE", opening), &[0]);
        let start = run::<i64>(&mut connection, "GET key").unwrap() - 999 * SECOND;
        // Each call takes what comes back in a hundredth of a second. At a high rate, calls for single tokens would be
        // too slow.
        let tokens = (rate / 100).max(1);
        let made = AtomicU64::new(0);
        let client = |_, running: &dyn Fn() -> bool| {
            let mut connections = [servers[0].connect(), servers[1].connect()];
            let mut got = 0;
            while running() {
                made.fetch_add(1, Ordering::Relaxed);
                match run::<[i64; 5]>(&mut connections[0], &call("CL.THROTTLE", tokens)) {
                    Ok([limited, ..]) => got += if limited == 0 { tokens } else { 0 },
                    Err(error) => {
                        assert_eq!(error.code(), Some("READONLY"), "{error}");
                        connections.swap(0, 1);
                    }
                }
            }
            got
        };
        // A third of the calls are made before there is a replica, a third before its promotion, and a third after
        // that.
        let wait_for_a_third = || {
            let until = made.load(Ordering::Relaxed) + calls / 3;
            wait_until("a third of the calls are made", || made.load(Ordering::Relaxed) >= until);
        };
        let ((), got) = under_load(50, client, || {
            wait_for_a_third();
            replicate(&servers[1], &servers[0]);
            wait_for_a_third();
            run::<()>(&mut connection, &format!("FAILOVER TO 127.0.0.1 {}", servers[1].port)).unwrap();
            wait_until("the replica is promoted", || info(&mut servers[1].connect(), "role") == "master");
            wait_for_a_third();
        });
        // Take all tokens that are left, so that the limiter is empty at a known moment.
        let mut connection = servers[1].connect();
        let mut pipeline = redis::pipe();
        pipeline.cmd("TIME").add_command(command(&call("CL.TAKE", limit))).cmd("TIME");
        let (before, [rest, ..], after): ((i64, i64), [i64; 5], (i64, i64)) = pipeline.query(&mut connection).unwrap();
        let [before, after] = [before, after].map(|(seconds, microseconds)| seconds * SECOND + microseconds * 1000);
        let got = opening + got.iter().sum::<i64>() + rest;
        // The TAT shows how many tokens the limiter has given out since the start. The clients must have got exactly
        // that many.
        let tat: i64 = run(&mut connection, "GET key").unwrap();
        assert_eq!(
            (tat - start) * rate / SECOND,
            got,
            "the tokens according to the TAT, and those that the clients counted"
        );
        // Allow for a token that is only partly back, and for the fraction of a microsecond that TIME drops.
        let given_by = |moment: i64| limit + (moment - start) * rate / SECOND;
        let expected = given_by(before) - 1..=given_by(after + 1_000);
        assert!(expected.contains(&got), "at {rate} a second, the clients got {got} tokens, not {expected:?}");
    }
}
