//! Replicas and AOFs hold what the primary holds, to the byte and the millisecond, whenever they are added.
//!
//! While there is no replica or AOF, the module does not build the SET that replicates a write. A replica or an AOF
//! that is added must still not miss a write. Both must be sent the effects of writes, never the module's calls.
//! Another module, callbacks.c, makes calls at the critical moments.
//!
//! The servers' cron ticks only once a second, so that it does not correct a mistake before the test can notice.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;

use redis::{Connection, Value};

use crate::support::aof::{commands, parse, wait_for_the_file};
use crate::support::compiling::load_with_unwritable_keys;
use crate::support::needs::{REDIS_7, needs, snapshot_channel};
use crate::support::programs::signal;
use crate::support::replication::{catch_up, follow, replicate};
use crate::support::{
    PATIENCE, Server, compiled, difference, info, module, run, run_all, snapshot, transaction, wait_for, wait_until,
};

const SETTINGS: [&str; 4] = ["--hz", "1", "--repl-ping-replica-period", "3600"];

/// Returns the settings for each way in which a primary sends a snapshot to its replicas: in a file; over the network
/// at once; over the network after a second, to all replicas that have connected by then; and over a second connection,
/// if the server supports that.
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

/// Starts a server on which callbacks.c receives each event before redis-cell does.
fn server_with_callbacks(settings: &[&str]) -> Server {
    let modules = ["--loadmodule", compiled("callbacks"), "--loadmodule", module()];
    Server::start_bare(&[&modules, &SETTINGS[..], settings].concat())
}

/// Makes a call that changes its keys. `turn` selects the call and the keys. No key expires during the tests.
fn change(connection: &mut Connection, turn: usize) {
    let key = format!("{{key}}{}", turn % 20);
    let call = match turn / 20 % 6 {
        0 => format!("CL.THROTTLE {key} 1000000 1 3600"),
        1 => format!("CL.CHARGE {key} 9 1 3600 20"),
        2 => format!("CL.PTAKE {key} 1000000 1 3600000 7"),
        3 => format!("CL.CHARGE {key} 9 1 3600 -3"),
        4 => format!("CL.MTHROTTLE {key} 1000000 1 3600 1 {{key}}shared 1000000 1 3600 1"),
        // A refund of all tokens deletes the key.
        _ => format!("CL.THROTTLE {key} 1000000 1 3600 -1000000"),
    };
    run::<Value>(connection, &call).unwrap();
}

/// Asks for the replication stream, as a replica that reads its snapshot from the network does.
fn ask_for_the_stream(primary: &Server, from: &str) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", primary.port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"REPLCONF capa eof capa psync2\r\n").unwrap();
    assert_eq!(stream.read(&mut [0; 10]).unwrap(), b"+OK\r\n".len());
    stream.write_all(format!("PSYNC {from}\r\n").as_bytes()).unwrap();
    stream
}

/// Checks that the replica has the same data as the primary, and was sent the effects of the calls, not the calls.
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

/// An event handler may make a call when the server forks the process that writes the snapshot. The replica is sent the
/// effect of this call only if the server's cron started the process. If PSYNC started the process, the server itself
/// loses all writes made at that moment.
#[test]
#[ignore = "slow: a snapshot that waits"]
fn a_replica_misses_no_call_that_is_made_while_it_joins() {
    // Redis 6.2 sends the replica what an event handler writes before the reply to PSYNC, which breaks the handshake.
    needs!(REDIS_7);
    for settings in snapshots() {
        let starts_later = settings == snapshots()[2];
        let moments: &[_] = if starts_later { &["fork", "reaped", "online"] } else { &["reaped", "online"] };
        let (primary, mut connection) = server_with_callbacks(&settings).connected();
        for moment in moments {
            run_all(&mut connection, &[&format!("CB.DO {moment} !CL.CHARGE {{key}}{moment} 9 1 3600 20")]);
        }
        // During this call, the module finds out that there is no replica.
        change(&mut connection, 0);
        let replica = Server::start_bare(&[&SETTINGS, &settings[..]].concat());
        replicate(&replica, &primary);
        change(&mut connection, 1);
        for moment in moments {
            wait_until(moment, || run(&mut connection, &format!("EXISTS {{key}}{moment}")).unwrap());
        }
        assert_same(&replica, &primary);
    }
}

/// shim.c hides the child process that saves, and reports its start as the start of a snapshot. To the module, the
/// server therefore seems to save without a fork. If the server's cron starts the process, callbacks.c receives that
/// event first, and makes a call whose effect is missing from the snapshot.
#[test]
#[ignore = "slow: a snapshot that waits"]
fn a_replica_misses_no_call_that_is_made_during_a_snapshot_without_a_fork() {
    needs!(REDIS_7);
    for starts_later in [false, true] {
        let snapshot = &snapshots()[1 + usize::from(starts_later)];
        let modules = [&["--loadmodule", compiled("callbacks")], &load_with_unwritable_keys()[..]].concat();
        let settings = [&modules, &SETTINGS[..], &["--rdb-key-save-delay", "100000"], snapshot].concat();
        let (primary, mut connection) = Server::start_bare(&settings).connected();
        if starts_later {
            run_all(&mut connection, &["CB.DO fork !CL.CHARGE {key}fork 9 1 3600 20"]);
        }
        (0..20).for_each(|turn| change(&mut connection, turn));
        let replica = Server::start_bare(&SETTINGS);
        follow(&replica, &primary);
        wait_until("the snapshot starts", || info(&mut connection, "rdb_bgsave_in_progress") == "1");
        change(&mut connection, 0);
        assert_eq!(info(&mut connection, "rdb_bgsave_in_progress"), "1", "the snapshot took less than two seconds");
        assert_eq!(run::<bool>(&mut connection, "EXISTS {key}fork").unwrap(), starts_later);
        assert_same(&replica, &primary);
    }
}

/// A replica restarts from its snapshot file, and continues its primary's stream without a new snapshot. The replica
/// then has a backlog, although no snapshot event has told the module about it. The replica is writable, so that a
/// client can call the module before the stream continues.
#[test]
fn a_replica_that_is_restarted_and_promoted_sends_its_replica_every_write() {
    let primary = server(&["--hz", "100"]);
    let sibling = server(&[]);
    let settings = ["--replicaof", "127.0.0.1", &primary.port.to_string(), "--replica-read-only", "no"];
    let mut promoted = server(&settings);
    replicate(&sibling, &primary);
    replicate(&promoted, &primary);
    change(&mut primary.connect(), 0);
    let id = info(&mut primary.connect(), "master_replid");
    for server in [&sibling, &promoted] {
        catch_up(server, &primary);
    }
    wait_until("the snapshot is saved", || run::<()>(&mut promoted.connect(), "SAVE").is_ok());
    promoted.kill();
    // Suspend the primary until the test has made a call on the replica.
    signal(primary.pid(), "STOP");
    promoted.restart();
    let mut connection = promoted.connect();
    // Let this key expire soon: only this replica has it, and the test compares the replica with its sibling.
    run::<Value>(&mut connection, "CL.PTHROTTLE {key}gone 0 1 1").unwrap();
    signal(primary.pid(), "CONT");
    wait_until("the stream continues", || info(&mut connection, "master_link_status") == "up");
    run::<()>(&mut connection, "REPLICAOF NO ONE").unwrap();
    (1..100).for_each(|turn| change(&mut connection, turn));
    follow(&sibling, &promoted);
    wait_until("the sibling continues the stream", || info(&mut connection, "sync_partial_ok") == "1");
    assert_same(&sibling, &promoted);
    assert_eq!(info(&mut connection, "master_replid2"), id, "the replica did not continue its primary's stream");
}

/// A primary restores its backlog from its snapshot file, and its replica continues from there. Another module makes
/// two calls: one before the file is loaded, from which redis-cell learns that there is no replica, and one after the
/// file is loaded. The server then sleeps, so that a client's waiting call runs before the first cron tick.
#[test]
#[ignore = "slow: a large file"]
fn a_primary_that_restarts_from_a_file_still_sends_its_replica_every_write() {
    // Redis 6.2 loads such a small file without answering clients in the meantime.
    needs!(REDIS_7);
    // The key expires before the file is saved: a server refuses to load a file with a key that already exists.
    let before = "CL.PTHROTTLE {key}module 0 1 1";
    let after = "CB.DO loaded !CL.CHARGE {key}loaded 9 1 3600 5 ; CB.DO loaded DEBUG SLEEP 0.5";
    let callbacks: Vec<_> = before.split(' ').chain([";"]).chain(after.split(' ')).collect();
    // Each key takes 200 microseconds to load, so that a client can connect during the load.
    let slow = ["--loading-process-events-interval-bytes", "1024", "--key-load-delay", "200"];
    let mut primary = server(&[&slow[..], &["--loadmodule", compiled("callbacks")], &callbacks].concat());
    run::<()>(&mut primary.connect(), "DEBUG POPULATE 2000").unwrap();
    let replica = server(&[]);
    replicate(&replica, &primary);
    change(&mut primary.connect(), 0);
    catch_up(&replica, &primary);
    // Try until SAVE succeeds: a snapshot for the replica may still be in progress.
    wait_until("the snapshot is saved", || run::<()>(&mut primary.connect(), "SAVE").is_ok());
    let port = primary.port;
    primary.kill();
    let early = thread::spawn(move || {
        let connect = || TcpStream::connect(("127.0.0.1", port)).ok();
        let mut stream = wait_for("the server listens", connect);
        loop {
            stream.write_all(b"CL.CHARGE {key}early 9 1 3600 5\r\n").unwrap();
            let mut reply = [0; 100];
            let length = stream.read(&mut reply).unwrap();
            if !reply.starts_with(b"-LOADING") {
                return reply[..length].escape_ascii().to_string();
            }
        }
    });
    primary.restart();
    let reply = early.join().unwrap();
    assert!(reply.starts_with("*5"), "the early call gets {reply}");
    replicate(&replica, &primary);
    change(&mut primary.connect(), 1);
    assert_same(&replica, &primary);
}

/// A client that takes the replication ID and the offset from INFO gets no snapshot, but must still be sent effects.
#[test]
fn a_client_that_sends_psync_with_the_offset_in_info_is_sent_effects() {
    let primary = server(&snapshots()[2]);
    let mut connection = primary.connect();
    change(&mut connection, 0);
    // This request creates the backlog now, but the snapshot begins only after a second.
    let _first = ask_for_the_stream(&primary, "? -1");
    wait_until("the backlog exists", || info(&mut connection, "repl_backlog_active") == "1");
    let [id, offset] = ["master_replid", "master_repl_offset"].map(|field| info(&mut connection, field));
    let mut second = ask_for_the_stream(&primary, &format!("{id} {}", offset.parse::<u64>().unwrap() + 1));
    let mut stream = [0; 1000];
    let length = second.read(&mut stream).unwrap();
    assert!(stream[..length].starts_with(b"+CONTINUE"), "PSYNC gets {}", stream[..length].escape_ascii());
    run::<Value>(&mut connection, "CL.MTHROTTLE {key}1 4 1 3600 1 {key}2 4 1 3600 1").unwrap();
    let length = second.read(&mut stream).unwrap();
    let sent = parse(&stream[..length]).into_iter().map(|words| words[0].escape_ascii().to_string());
    let sent: Vec<_> = sent.filter(|word| !["SELECT", "PING"].contains(&word.as_str())).collect();
    assert_eq!(sent, ["MULTI", "SET", "SET", "EXEC"], "the client must be sent the call's effects, in one transaction");
}

/// A transaction turns the AOF on between two calls. The first rewrite takes half a second.
#[test]
fn an_aof_that_is_turned_on_holds_what_the_server_holds() {
    let (server, mut connection) =
        server(&["--aof-use-rdb-preamble", "no", "--rdb-key-save-delay", "100000"]).connected();
    (0..5).for_each(|turn| change(&mut connection, turn));
    let call = "CL.CHARGE {key}turn 9 1 3600 5";
    transaction(&mut connection, &[call, "CONFIG SET appendonly yes", call]).unwrap();
    for rewrite in ["PING", "BGREWRITEAOF"] {
        run::<Value>(&mut connection, rewrite).unwrap();
        (10..20).for_each(|turn| change(&mut connection, turn));
        wait_for_the_file(&mut connection);
        (10..20).for_each(|turn| change(&mut connection, turn + 20));
    }
    assert_aof(&server);
}

/// Redis 6.2 writes a call's effects to the AOF only when the call ends. The AOF may have been turned on by then.
#[test]
fn an_aof_that_another_module_turns_on_within_a_call_holds_what_the_server_holds() {
    let settings = ["--aof-use-rdb-preamble", "no", "--notify-keyspace-events", "Ad"];
    let (server, mut connection) = server_with_callbacks(&settings).connected();
    run_all(&mut connection, &["CB.DO cl.throttle CONFIG SET appendonly yes", "CL.CHARGE {key} 9 1 3600 5"]);
    wait_for_the_file(&mut connection);
    assert_aof(&server);
}

/// Checks that the AOF holds what the server holds, and none of the module's calls.
fn assert_aof(server: &Server) {
    let mut connection = server.connect();
    let before = snapshot(&mut connection);
    run::<()>(&mut connection, "DEBUG LOADAOF").unwrap();
    assert_eq!(snapshot(&mut connection), before);
    let call = commands(&server.folder).into_iter().find(|words| words[0].starts_with("CL."));
    assert_eq!(call, None, "the AOF holds the call itself, not its effect");
}

/// Save points depend on the server's count of changes. hostile::calls checks that count with an AOF. This server has
/// neither an AOF nor a replica.
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
