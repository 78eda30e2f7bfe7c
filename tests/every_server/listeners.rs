//! Replicas and AOFs that come and go under load hold what the primary holds, to the byte and the millisecond. If
//! nothing listens, the module does not build a SET for its writes. A replica or an AOF that appears at any moment must
//! still not miss a write, and must not be sent a call of the module.
//!
//! The servers' cron ticks only once a second, so that it does not correct a mistake before the test notices.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread::sleep;
use std::time::Duration;

use redis::{Connection, Value};

use crate::support::aof::{commands, parse, wait_for_the_file};
use crate::support::needs::{REDIS_7, is_redis_6_2, needs, snapshot_channel};
use crate::support::programs::signal;
use crate::support::replication::{catch_up, follow, replicate};
use crate::support::traffic::{under_full_load, under_load};
use crate::support::{
    PATIENCE, Server, compiled, difference, info, module, run, run_all, snapshot, transaction, wait_until,
};

const CLIENTS: usize = 3;
const SETTINGS: [&str; 4] = ["--hz", "1", "--repl-ping-replica-period", "3600"];

/// Returns the settings for each way in which a primary makes its snapshot for a replica: in a file; over the network,
/// at once; for all replicas that connect within a second; and over a second connection, if supported.
fn snapshots() -> Vec<Vec<&'static str>> {
    let ways = [("no", "0"), ("yes", "0"), ("yes", "1")]
        .map(|(diskless, delay)| vec!["--repl-diskless-sync", diskless, "--repl-diskless-sync-delay", delay]);
    let channel = [&ways[1], snapshot_channel()].concat();
    let has_channel = channel != ways[1];
    ways.into_iter().chain(has_channel.then_some(channel)).collect()
}

fn server(settings: &[&str]) -> Server {
    Server::start_with(&[&SETTINGS, settings].concat())
}

/// Makes a call that changes its keys, in a way that depends on the turn. No key expires within the test.
fn change(connection: &mut Connection, client: usize, turn: usize) {
    let key = format!("{{key}}{client}/{}", turn % 20);
    let call = match turn / 20 % 6 {
        0 => format!("CL.THROTTLE {key} 1000000 1 3600"),
        1 => format!("CL.CHARGE {key} 9 1 3600 20"),
        2 => format!("CL.PTAKE {key} 1000000 1 3600000 7"),
        3 => format!("CL.CHARGE {key} 9 1 3600 -3"),
        4 => format!("CL.MTHROTTLE {key} 1000000 1 3600 1 {{key}}shared/{client} 1000000 1 3600 1"),
        // A full refund deletes the key.
        _ => format!("CL.THROTTLE {key} 1000000 1 3600 -1000000"),
    };
    run::<Value>(connection, &call).unwrap();
}

/// Changes keys on `primary` while `body` runs.
fn under_changes(primary: &Server, body: impl FnOnce()) {
    let changing = |client, more: &dyn Fn() -> bool| {
        let mut connection = primary.connect();
        for turn in (0..).take_while(|_| more()) {
            change(&mut connection, client, turn);
        }
    };
    under_load(CLIENTS, changing, body);
}

/// Asks for the stream like a replica that reads its snapshot from the network.
fn ask_for_the_stream(primary: &Server, from: &str) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", primary.port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"REPLCONF capa eof capa psync2\r\n").unwrap();
    assert_eq!(stream.read(&mut [0; 10]).unwrap(), b"+OK\r\n".len());
    stream.write_all(format!("PSYNC {from}\r\n").as_bytes()).unwrap();
    stream
}

/// Checks that the replica holds what the primary holds, and was sent no call of the module.
fn assert_same(replica: &Server, primary: &Server) {
    catch_up(replica, primary);
    let (expected, actual) = (snapshot(&mut primary.connect()), snapshot(&mut replica.connect()));
    let differ = difference(&expected, &actual);
    assert_eq!(differ.first_key_value(), None, "the replica does not hold what the primary holds");
    assert!(!expected.is_empty());
    let statistics: String = run(&mut replica.connect(), "INFO commandstats").unwrap();
    let called = |line: &&str| line.starts_with("cmdstat_cl.") && !line.contains(":calls=0,");
    assert_eq!(statistics.lines().find(called), None, "the replica was sent the call itself, not its effect");
}

/// One of the replicas lacks the module.
#[test]
#[ignore = "slow: load"]
fn replicas_that_join_at_any_moment_hold_what_the_primary_holds() {
    for settings in snapshots() {
        // The file takes milliseconds to send, so that a call comes between the end of the snapshot's process and the
        // replica's event.
        let primary = server(&[&settings[..], &["--rdbcompression", "no"]].concat());
        run::<()>(&mut primary.connect(), &format!("RPUSH large {}", "x".repeat(10 << 20))).unwrap();
        let replicas = [server(&settings), Server::start_bare(&[&SETTINGS, &settings[..]].concat())];
        under_changes(&primary, || {
            for replica in &replicas {
                sleep(Duration::from_millis(150));
                replicate(replica, &primary);
            }
            sleep(Duration::from_millis(150));
        });
        for replica in &replicas {
            assert_same(replica, &primary);
        }
    }
}

/// The replica restarts from its file and continues its primary's stream. Its backlog begins then, but no loaded
/// snapshot's event tells the module. The replica is writable, so that a client can call it before that.
#[test]
fn a_replica_that_is_restarted_and_promoted_sends_its_replica_every_write() {
    let primary = server(&["--hz", "100"]);
    let sibling = server(&[]);
    let settings = ["--replicaof", "127.0.0.1", &primary.port.to_string(), "--replica-read-only", "no"];
    let mut promoted = server(&settings);
    replicate(&sibling, &primary);
    replicate(&promoted, &primary);
    change(&mut primary.connect(), 0, 0);
    let id = info(&mut primary.connect(), "master_replid");
    for server in [&sibling, &promoted] {
        catch_up(server, &primary);
    }
    wait_until("a file", || run::<()>(&mut promoted.connect(), "SAVE").is_ok());
    promoted.kill();
    // The primary is stopped until the replica has been called.
    signal(primary.pid(), "STOP");
    promoted.restart();
    let mut connection = promoted.connect();
    // The key lives for a millisecond, so the replica soon holds exactly what its primary holds.
    run::<Value>(&mut connection, "CL.PTHROTTLE {key}gone 0 1 1").unwrap();
    signal(primary.pid(), "CONT");
    wait_until("the stream", || info(&mut connection, "master_link_status") == "up");
    run::<()>(&mut connection, "REPLICAOF NO ONE").unwrap();
    for turn in 0..100 {
        change(&mut connection, 1, turn);
    }
    follow(&sibling, &promoted);
    wait_until("the rest of the stream", || info(&mut connection, "sync_partial_ok") == "1");
    assert_same(&sibling, &promoted);
    assert_eq!(info(&mut connection, "master_replid2"), id, "the replica did not continue its primary's stream");
}

/// The primary's backlog comes from the file, and its replica continues from there. Another module makes a call before
/// the file is loaded, and clients make calls before the cron ticks.
#[test]
#[ignore = "slow: load"]
fn a_primary_that_restarts_from_a_file_still_sends_its_replica_every_write() {
    // The key lives for a millisecond: a key of the file must not exist when the file is loaded.
    let caller = ["--loadmodule", compiled("callbacks"), "CL.PTHROTTLE", "{key}module", "0", "1", "1"];
    // The server takes 200 microseconds to load a key: clients are refused meanwhile, and have a call waiting at the
    // end.
    let refusing: &[_] = if is_redis_6_2() { &[] } else { &["--loading-process-events-interval-bytes", "1024"] };
    let mut primary = server(&[refusing, &["--key-load-delay", "200"], &caller].concat());
    run::<()>(&mut primary.connect(), "DEBUG POPULATE 2000").unwrap();
    let replica = server(&[]);
    replicate(&replica, &primary);
    under_changes(&primary, || sleep(Duration::from_millis(100)));
    catch_up(&replica, &primary);
    // A snapshot for the replica may still be under way.
    wait_until("a snapshot", || run::<()>(&mut primary.connect(), "SAVE").is_ok());
    let port = primary.port;
    primary.kill();
    under_full_load(
        CLIENTS,
        |client, more| {
            let call = format!("CL.CHARGE {{key}}early/{client} 9 1 3600 5\r\n");
            while more() {
                let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else {
                    sleep(Duration::from_millis(1));
                    continue;
                };
                while more() && stream.write_all(call.as_bytes()).is_ok() && stream.read(&mut [0; 100]).is_ok() {}
            }
        },
        || {
            primary.restart();
            sleep(Duration::from_millis(50));
        },
    );
    replicate(&replica, &primary);
    under_changes(&primary, || sleep(Duration::from_millis(100)));
    assert_same(&replica, &primary);
}

/// A client that sends PSYNC with the replication ID and an offset is not a replica, but must not be sent calls either.
#[test]
fn a_client_that_sends_psync_with_the_offset_in_info_is_sent_effects() {
    let primary = server(&snapshots()[2]);
    let mut connection = primary.connect();
    change(&mut connection, 0, 0);
    // The backlog exists from now on; the snapshot begins only after a second.
    let _first = ask_for_the_stream(&primary, "? -1");
    wait_until("backlog", || info(&mut connection, "repl_backlog_active") == "1");
    let [id, offset] = ["master_replid", "master_repl_offset"].map(|field| info(&mut connection, field));
    let mut second = ask_for_the_stream(&primary, &format!("{id} {}", offset.parse::<u64>().unwrap() + 1));
    let mut stream = [0; 1000];
    let length = second.read(&mut stream).unwrap();
    assert!(stream[..length].starts_with(b"+CONTINUE"), "{}", stream[..length].escape_ascii());
    run::<Value>(&mut connection, "CL.MTHROTTLE {key}1 4 1 3600 1 {key}2 4 1 3600 1").unwrap();
    let length = second.read(&mut stream).unwrap();
    let sent = parse(&stream[..length]).into_iter().map(|words| words[0].escape_ascii().to_string());
    let sent: Vec<_> = sent.filter(|word| !["SELECT", "PING"].contains(&word.as_str())).collect();
    assert_eq!(sent, ["MULTI", "SET", "SET", "EXEC"], "the effects of the call, in one transaction");
}

/// A module that was loaded earlier is told first about a snapshot's process, and its handler's calls are sent to the
/// replica that gets the snapshot. Redis 6.2 sends the writes of such a handler, even SET, before its reply to PSYNC.
#[test]
#[ignore = "slow: load"]
fn a_call_made_as_a_snapshots_process_starts_is_sent_as_its_effect() {
    needs!(REDIS_7);
    // The cron starts this snapshot, after a second. If PSYNC starts one, the server itself loses that moment's writes.
    let modules = ["--loadmodule", compiled("callbacks"), "--loadmodule", module()];
    let settings = [&modules, &SETTINGS[..], &snapshots()[2]].concat();
    let (primary, mut connection) = Server::start_bare(&settings).connected();
    run_all(&mut connection, &["CB.DO fork !CL.CHARGE {key}born 9 1 3600 20", "CB.DO fork !INCR forks"]);
    // After this call, the module knows that nothing listens.
    change(&mut connection, 0, 0);
    let replica = Server::start_bare(&SETTINGS);
    replicate(&replica, &primary);
    change(&mut connection, 0, 1);
    assert_eq!(run::<i64>(&mut connection, "GET forks").unwrap(), 1);
    assert_same(&replica, &primary);
}

/// A transaction turns the AOF on between two calls.
#[test]
#[ignore = "slow: load"]
fn an_aof_that_is_turned_on_holds_what_the_server_holds() {
    let primary = server(&["--aof-use-rdb-preamble", "no"]);
    let mut connection = primary.connect();
    under_changes(&primary, || {
        sleep(Duration::from_millis(100));
        let call = "CL.CHARGE {key}turn 9 1 3600 5";
        transaction(&mut connection, &[call, "CONFIG SET appendonly yes", call]).unwrap();
        wait_for_the_file(&mut connection);
        let _ = run::<Value>(&mut connection, "BGREWRITEAOF");
        wait_for_the_file(&mut connection);
        sleep(Duration::from_millis(100));
    });
    let before = snapshot(&mut connection);
    run::<()>(&mut connection, "DEBUG LOADAOF").unwrap();
    assert_eq!(snapshot(&mut connection), before);
    let call = commands(&primary.folder).into_iter().find(|words| words[0].starts_with("CL."));
    assert_eq!(call, None, "the AOF holds a call, not its effect");
}

/// The server's count of changes triggers save points. hostile::calls checks it with an AOF.
#[test]
fn every_write_counts_for_save_points_even_if_nothing_listens() {
    let primary = server(&[]);
    let mut connection = primary.connect();
    for (call, changes) in [
        ("CL.THROTTLE {a}1 4 1 3600 3", 1),
        ("CL.THROTTLE {a}1 4 1 3600 3", 1),
        ("CL.MTHROTTLE {a}3 4 1 3600 1 {a}4 4 1 3600 1", 3),
        ("CL.MTHROTTLE {a}3 4 1 3600 -1 {a}4 4 1 3600 -1", 5),
    ] {
        run::<Value>(&mut connection, call).unwrap();
        assert_eq!(info(&mut connection, "rdb_changes_since_last_save"), changes.to_string(), "{call}");
    }
}
