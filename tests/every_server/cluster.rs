//! Limiters in a cluster, which finds and moves their keys like any others.

use std::sync::atomic::{AtomicI64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use redis::Value;
use redis::cluster::ClusterClient;

use crate::support::cluster::two_nodes;
use crate::support::needs::{FAST, MOVING_SLOTS, PYTHON_REDIS, is_redis_6_2, needs};
use crate::support::programs::{output, python, signal};
use crate::support::traffic::under_full_load;
use crate::support::{Server, assert_reply, command, compiled, error_of, run, throttle, wait_for, wait_until};

/// The example works even when the first node that the client knows owns none of the keys.
#[test]
#[ignore = "slow: a cluster"]
fn the_example_for_clients_finds_the_node_of_a_call() {
    needs!(FAST);
    needs!(PYTHON_REDIS);
    let [owner, other] = two_nodes(&[]);
    let replies = output(&mut python("clients/cluster.py", &other));
    assert_eq!(replies, "[0, 3, 2, -1, 60]\n");
    assert_reply(&mut owner.connect(), "CL.THROTTLE user123 2 1 60", &[0, 3, 1]);
}

/// Four clients empty 20 limiters of one slot, while the slot moves to another node.
#[test]
#[ignore = "slow: a cluster"]
fn a_slot_that_moves_under_load_allows_what_one_server_would_have_allowed() {
    let limit = 2_000;
    let let_through: [AtomicI64; 20] = Default::default();
    let total = || let_through.iter().map(|key| key.load(Ordering::SeqCst)).sum::<i64>();
    let [from, to] = two_nodes(&[]);
    let (mut source, mut target) = (from.connect(), to.connect());
    let cluster = ClusterClient::new([&from, &to].map(|node| format!("redis://127.0.0.1:{}/", node.port))).unwrap();
    let slot: usize = run(&mut source, "CLUSTER KEYSLOT {tag}").unwrap();
    under_full_load(
        4,
        |_, _| {
            let mut connection = wait_for("the cluster answers", || cluster.get_connection().ok());
            let mut open: Vec<usize> = (0..let_through.len()).collect();
            while !open.is_empty() {
                open.retain(|&number| {
                    let call = format!("{{tag}}{number} {} 1 1000000", limit - 1);
                    let passed = throttle(&mut connection, &call)[0] == 0;
                    if passed {
                        let before = let_through[number].fetch_add(1, Ordering::SeqCst);
                        assert!(before < limit, "limiter {number} lets through more than {limit}");
                    }
                    passed
                });
            }
        },
        || {
            wait_until("load", || total() > 1_000);
            run::<()>(&mut target, &format!("CLUSTER SETSLOT {slot} IMPORTING {}", id(&from))).unwrap();
            run::<()>(&mut source, &format!("CLUSTER SETSLOT {slot} MIGRATING {}", id(&to))).unwrap();
            loop {
                let keys: Vec<String> = run(&mut source, &format!("CLUSTER GETKEYSINSLOT {slot} 2")).unwrap();
                if keys.is_empty() {
                    break;
                }
                let mut migrate = redis::cmd("MIGRATE");
                migrate.arg(&["127.0.0.1", &to.port.to_string(), "", "0", "5000", "KEYS"]).arg(&keys);
                migrate.exec(&mut source).unwrap();
                // From now on, the source answers some calls and the target others.
                sleep(Duration::from_millis(5));
            }
            for node in [&mut target, &mut source] {
                run::<()>(node, &format!("CLUSTER SETSLOT {slot} NODE {}", id(&to))).unwrap();
            }
            assert!(total() < limit * 20, "the limiters were empty before the slot had moved");
        },
    );
    assert_eq!(let_through.map(AtomicI64::into_inner), [limit; 20], "tokens let through");
    let keys = [source, target].map(|mut node| run::<i64>(&mut node, "DBSIZE").unwrap());
    assert_eq!(keys, [0, 20], "keys on the two nodes");
}

/// The node loses the slot of an expired key while writes are paused, within a transaction that the server has already
/// admitted. Redis 7.0 to 8.6 and Valkey 8.0 crash if SET is called there.
#[test]
#[ignore = "slow: a cluster"]
fn a_slot_that_is_lost_within_a_transaction_crashes_no_node() {
    let [server, other] = two_nodes(&["--cluster-require-full-coverage", "no"]);
    let mut connection = server.connect();
    run::<()>(&mut connection, "DEBUG SET-ACTIVE-EXPIRE 0").unwrap();
    let migrating = format!("MIGRATING {}", id(&other));
    let slot = run::<usize>(&mut connection, "CLUSTER KEYSLOT {k}1").unwrap();
    let stable = format!("CLUSTER SETSLOT {slot} STABLE");
    let error = error_of(&mut connection, "CL.MTHROTTLE k1 5 1 60 1 k2 5 1 60 1");
    assert!(error.starts_with("CROSSSLOT "), "the keys share no hash tag: {error}");
    for within in [format!("CLUSTER DELSLOTS {slot}"), format!("CLUSTER SETSLOT {slot} {migrating}")] {
        for call in [
            "CL.THROTTLE {k}1 5 1 60",
            "CL.CHARGE {k}1 5 1 60 7",
            "CL.TAKE {k}1 5 1 60 9",
            "CL.MTHROTTLE {k}1 5 1 60 1 {k}2 5 1 60 1",
            "CL.MTHROTTLE {k}2 5 1 60 1 {k}1 5 1 60 1",
        ] {
            for line in ["DEL {k}1 {k}2", "CL.THROTTLE {k}2 5 1 60 2", "SET {k}1 1790000000000000000 PX 5"] {
                run::<Value>(&mut connection, line).unwrap();
            }
            sleep(Duration::from_millis(10));
            let mut transaction = redis::pipe();
            transaction.atomic();
            for line in ["CLIENT PAUSE 60000 WRITE", &within, call] {
                transaction.add_command(command(line));
            }
            let answer = transaction.query::<Vec<Value>>(&mut connection);
            run::<()>(&mut server.connect(), "CLIENT UNPAUSE")
                .unwrap_or_else(|error| panic!("{call}, {within}: {error}\n{}", server.log()));
            let _ = run::<Value>(&mut connection, &format!("CLUSTER ADDSLOTS {slot}"));
            run::<()>(&mut connection, &stable).unwrap();
            let taken = 4 - run::<[i64; 5]>(&mut connection, "CL.LOOK {k}2 5 1 60").unwrap()[2];
            match answer {
                Err(error) => assert_eq!((error.code(), taken), (Some("TRYAGAIN"), 0), "{call}, {within}: {error}"),
                // Redis 6.2 still finds the expired key, and writes it.
                Ok(_) => assert!(is_redis_6_2(), "{call}, {within}: it was not refused"),
            }
        }
    }
}

/// The node that gets the slot reads its stream like a replica, but Valkey's INFO counts no replica. The node is stopped
/// when the snapshot's process ends, so that the rest of the stream is sent without such a process.
#[test]
#[ignore = "slow: a cluster"]
fn a_node_that_gets_slots_from_another_is_sent_effects() {
    needs!(MOVING_SLOTS);
    let [source, target] = two_nodes(&["--hz", "100", "--loadmodule", compiled("callbacks")]);
    let (mut from, mut to) = (source.connect(), target.connect());
    // The source waits a second after the fork, in which the test stops the target.
    run::<()>(&mut from, "CB.DO fork DEBUG SLEEP 1").unwrap();
    let mut probe = source.connect();
    probe.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let slot: i64 = run(&mut from, "CLUSTER KEYSLOT {key}").unwrap();
    assert_reply(&mut from, "CL.CHARGE {key} 9 1 3600 1", &[0, 10, 9]);
    if run::<Value>(&mut to, &format!("CLUSTER MIGRATION IMPORT {slot} {slot}")).is_err() {
        let migrate = format!("CLUSTER MIGRATESLOTS SLOTSRANGE {slot} {slot} NODE {}", id(&target));
        run::<Value>(&mut from, &migrate).unwrap();
    }
    wait_until("the snapshot's process", || run::<()>(&mut probe, "PING").is_err());
    signal(target.pid(), "STOP");
    run::<()>(&mut from, "PING").unwrap();
    sleep(Duration::from_millis(300));
    // Redis answers only when the slot has moved: with MOVED.
    from.send_packed_command(&command("CL.CHARGE {key} 9 1 3600 1").get_packed_command()).unwrap();
    sleep(Duration::from_millis(100));
    signal(target.pid(), "CONT");
    let remaining = if matches!(from.recv_response().unwrap(), Value::Array(_)) { 8 } else { 9 };
    let look = || run::<[i64; 5]>(&mut to, "CL.LOOK {key} 9 1 3600").ok();
    assert_eq!(wait_for("the slot has moved", look)[2], remaining);
    let statistics: String = run(&mut to, "INFO commandstats").unwrap();
    assert!(!statistics.contains("cmdstat_cl.charge:"), "the target was sent the call itself: {statistics}");
}

fn id(node: &Server) -> String {
    run(&mut node.connect(), "CLUSTER MYID").unwrap()
}
