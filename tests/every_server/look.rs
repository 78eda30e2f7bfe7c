//! CL.LOOK and CL.PLOOK report what CL.THROTTLE would decide, and write nothing. They work wherever GET works.

use std::fs;
use std::time::Duration;

use redis::{Connection, Value};

use crate::support::clock::{Clock, MILLISECOND, START};
use crate::support::needs::{FORKS_TO_SAVE, is_redis_6_2, needs};
use crate::support::replication::{SETTINGS, catch_up, replicate};
use crate::support::{COMMANDS, Server, assert_reply, command, error_of, info, run, run_all, throttle, wait_until};

/// Calls that look at the limiter, each with the time until the limiter is full.
const LOOKS: [(&str, i64); 2] = [("CL.LOOK key 4 1 3600", 7_200), ("CL.PLOOK key 4 1 3600000", 7_200_000)];

/// Creates a limiter that holds five tokens and gets one back every hour, and takes two of them.
fn limiter(connection: &mut Connection) {
    throttle(connection, "key 4 1 3600 2");
}

/// Checks that the server refuses every call that may write, with the error code `code`, and still answers looks.
fn assert_only_looks(connection: &mut Connection, code: &str) {
    for call in COMMANDS.iter().filter(|command| !command.only_reads()).flat_map(|command| command.calls("key")) {
        let error = error_of(connection, &call);
        assert!(error.starts_with(&format!("{code} ")), "{call} gets {error}, not {code}");
    }
    for (look, reset_after) in LOOKS {
        let reply = run::<[i64; 5]>(connection, look).unwrap_or_else(|error| panic!("{look} under {code}: {error}"));
        assert_eq!(reply, [0, 5, 3, -1, reset_after], "{look} under {code}");
        assert_reply(connection, &look.replace("key", "new"), &[0, 5, 5, -1, 0]);
    }
    // EVAL counts as a write, so use EVAL_RO. Redis 6.2 lacks EVAL_RO, but checks each call in a script separately.
    let eval = if is_redis_6_2() { "EVAL" } else { "EVAL_RO" };
    let line = format!("{eval} return(redis.call('CL.LOOK',KEYS[1],4,1,3600)) 1 key");
    assert_eq!(run::<[i64; 5]>(connection, &line).unwrap(), [0, 5, 3, -1, 7_200], "{eval} under {code}");
}

#[test]
fn a_replica_answers_a_look_as_its_primary_does() {
    let [(_clock, primary, _), (_other, replica, _)] = [(); 2].map(|()| Clock::start_with(START, &SETTINGS));
    limiter(&mut primary.connect());
    replicate(&replica, &primary);
    assert_only_looks(&mut replica.connect(), "READONLY");
    throttle(&mut primary.connect(), "key 4 1 3600 3");
    catch_up(&replica, &primary);
    assert_reply(&mut replica.connect(), "CL.LOOK key 4 1 3600", &[1, 5, 0, 3_600, 18_000]);
}

/// The replica still holds the key, because its primary has not sent a DEL yet.
#[test]
fn an_expired_key_on_a_replica_is_a_full_limiter() {
    let [(_clock, primary, _), (clock, replica, mut connection)] =
        [(); 2].map(|()| Clock::start_with(START, &SETTINGS));
    replicate(&replica, &primary);
    run::<Value>(&mut primary.connect(), "CL.PCHARGE key 4 1 1 5").unwrap();
    catch_up(&replica, &primary);
    clock.set(START + 20 * MILLISECOND);
    for (quantity, limited) in [(1, 0), (5, 0), (6, 1)] {
        assert_reply(&mut connection, &format!("CL.LOOK key 4 1 3600 {quantity}"), &[limited, 5, 5, -1, 0]);
        assert_eq!(run::<i64>(&mut connection, "DBSIZE").unwrap(), 1, "the look deleted the key");
    }
}

#[test]
fn a_look_is_answered_when_replicas_are_missing_memory_is_full_or_a_save_has_failed() {
    let (_clock, server, mut connection) = Clock::start_with(START, &["--maxmemory-policy", "noeviction"]);
    limiter(&mut connection);
    run::<()>(&mut connection, "CONFIG SET min-replicas-to-write 1").unwrap();
    assert_only_looks(&mut connection, "NOREPLICAS");
    run::<()>(&mut connection, "CONFIG SET min-replicas-to-write 0").unwrap();
    run::<()>(&mut connection, "CONFIG SET maxmemory 1").unwrap();
    assert_only_looks(&mut connection, "OOM");
    run::<()>(&mut connection, "CONFIG SET maxmemory 0").unwrap();
    // A folder with the snapshot's name makes the snapshot fail.
    fs::create_dir(server.folder.join("dump.rdb")).unwrap();
    command("CONFIG SET save").arg("3600 1").exec(&mut connection).unwrap();
    run::<()>(&mut connection, "BGSAVE").unwrap();
    wait_until("the snapshot fails", || info(&mut connection, "rdb_last_bgsave_status") == "err");
    assert_only_looks(&mut connection, "MISCONF");
    // Turn saving off: scripts/memcheck stops servers with SIGTERM, and a server that cannot save would keep running.
    command("CONFIG SET save").arg("").exec(&mut connection).unwrap();
}

/// A server that loads a limiter from a file or from its primary stores the digits as a number. A look turns that
/// number into a string, which takes more memory.
#[test]
fn the_first_look_at_a_key_takes_at_most_32_bytes_even_at_maxmemory() {
    let (_server, mut connection) = Server::start_with(&["--maxmemory-policy", "noeviction"]).connected();
    run::<()>(&mut connection, &format!("SET key {START} EX 3600")).unwrap();
    run::<()>(&mut connection, "CONFIG SET maxmemory 1").unwrap();
    let sizes = [(); 3].map(|()| {
        let size: i64 = run(&mut connection, "MEMORY USAGE key").unwrap();
        run::<[i64; 5]>(&mut connection, "CL.LOOK key 4 1 60").unwrap();
        size
    });
    assert!(sizes[1] <= sizes[0] + 32 && sizes[2] == sizes[1], "{sizes:?} bytes before and after each look");
}

/// A look must open its key for reading, because the server counts no hit or miss when a key is opened for writing.
#[test]
fn a_look_counts_as_one_hit_or_one_miss() {
    needs!(FORKS_TO_SAVE);
    let (_server, mut connection) = Server::start().connected();
    limiter(&mut connection);
    for (key, hits_and_misses) in [("key", ["1", "0"]), ("new", ["0", "1"])] {
        run_all(&mut connection, &["CONFIG RESETSTAT", &format!("CL.LOOK {key} 4 1 3600")]);
        let counted = ["keyspace_hits", "keyspace_misses"].map(|field| info(&mut connection, field));
        assert_eq!(counted, hits_and_misses, "hits and misses of a look at {key}");
    }
}

#[test]
fn a_look_is_answered_while_writes_are_paused() {
    let (clock, server, mut connection) = Clock::start(START);
    run::<Value>(&mut connection, "CL.PTHROTTLE expired 0 1 1").unwrap();
    clock.set(START + 3 * MILLISECOND);
    limiter(&mut connection);
    run::<()>(&mut connection, "CLIENT PAUSE 60000 WRITE").unwrap();
    let mut reader = server.connect();
    for (look, reset_after) in LOOKS {
        assert_eq!(run::<[i64; 5]>(&mut reader, look).unwrap(), [0, 5, 3, -1, reset_after], "{look}");
    }
    assert_reply(&mut reader, "CL.LOOK expired 4 1 60", &[0, 5, 5, -1, 0]);
    // A call that may write waits for the end of the pause, even with a quantity of 0.
    let mut writer = server.connect();
    writer.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    run::<Value>(&mut writer, "CL.THROTTLE key 4 1 3600 0").unwrap_err();
    run::<()>(&mut connection, "CLIENT UNPAUSE").unwrap();
}
