//! Tests limiters in a cluster. Their keys are found and moved like any other keys.

use std::thread::sleep;
use std::time::Duration;

use redis::{Connection, Value};

use crate::support::cluster::two_nodes;
use crate::support::needs::{MOVING_SLOTS, is_redis_6_2, needs};
use crate::support::programs::signal;
use crate::support::{
    Server, assert_reply, command, compiled, error_of, run, run_all, transaction, wait_for, wait_until,
};

/// The slot contains two limiters. During the move, one of them is already on the new node, and the other is not.
#[test]
#[ignore = "slow: a cluster"]
fn a_limiter_keeps_its_tokens_while_its_slot_moves() {
    let [from, to] = two_nodes(&[]);
    let (mut source, mut target) = (from.connect(), to.connect());
    let set_slot = |node: &mut Connection, state: &str| {
        let slot: usize = run(node, "CLUSTER KEYSLOT {k}").unwrap();
        run::<()>(node, &format!("CLUSTER SETSLOT {slot} {state}")).unwrap();
    };
    let migrate = |key: &str| format!("MIGRATE 127.0.0.1 {} {key} 0 5000", to.port);
    let [first, second] = ["CL.THROTTLE {k}1 9 1 3600 2", "CL.THROTTLE {k}2 9 1 3600 2"];
    assert_reply(&mut source, first, &[0, 10, 8]);
    assert_reply(&mut source, second, &[0, 10, 8]);
    set_slot(&mut target, &format!("IMPORTING {}", id(&from)));
    set_slot(&mut source, &format!("MIGRATING {}", id(&to)));
    run::<()>(&mut source, &migrate("{k}1")).unwrap();
    assert_reply(&mut source, second, &[0, 10, 6]);
    let both = "CL.MTHROTTLE {k}1 9 1 3600 1 {k}2 9 1 3600 1";
    // Redis 6.2 sends a client to the new node although that node lacks one of the keys.
    for (call, code) in [(first, "ASK "), (both, if is_redis_6_2() { "ASK " } else { "TRYAGAIN " })] {
        let error = error_of(&mut source, call);
        assert!(error.starts_with(code), "{call} gets {error}, not {code}");
    }
    run::<()>(&mut target, "ASKING").unwrap();
    assert_reply(&mut target, first, &[0, 10, 6]);
    run::<()>(&mut source, &migrate("{k}2")).unwrap();
    for node in [&mut target, &mut source] {
        set_slot(node, &format!("NODE {}", id(&to)));
    }
    run::<Value>(&mut target, both).unwrap();
    assert_reply(&mut target, first, &[0, 10, 3]);
    assert_reply(&mut target, second, &[0, 10, 3]);
}

/// Within one transaction, writes are paused, the node loses the slot of an expired key, and a call writes that key. If
/// the module called SET at that point, Redis 7.0 to 8.6 and Valkey 8.0 would crash.
#[test]
#[ignore = "slow: a cluster"]
fn losing_a_slot_within_a_transaction_does_not_crash_the_node() {
    let [server, other] = two_nodes(&["--cluster-require-full-coverage", "no"]);
    let mut connection = server.connect();
    run::<()>(&mut connection, "DEBUG SET-ACTIVE-EXPIRE 0").unwrap();
    let migrating = format!("MIGRATING {}", id(&other));
    let slot = run::<usize>(&mut connection, "CLUSTER KEYSLOT {k}1").unwrap();
    let stable = format!("CLUSTER SETSLOT {slot} STABLE");
    let error = error_of(&mut connection, "CL.MTHROTTLE k1 5 1 60 1 k2 5 1 60 1");
    assert!(error.starts_with("CROSSSLOT "), "the keys share no hash tag, but the error is {error}");
    for within in [format!("CLUSTER DELSLOTS {slot}"), format!("CLUSTER SETSLOT {slot} {migrating}")] {
        for call in [
            "CL.THROTTLE {k}1 5 1 60",
            "CL.CHARGE {k}1 5 1 60 7",
            "CL.TAKE {k}1 5 1 60 9",
            "CL.MTHROTTLE {k}1 5 1 60 1 {k}2 5 1 60 1",
            "CL.MTHROTTLE {k}2 5 1 60 1 {k}1 5 1 60 1",
        ] {
            let expired = "SET {k}1 1790000000000000000 PX 5";
            run_all(&mut connection, &["DEL {k}1 {k}2", "CL.THROTTLE {k}2 5 1 60 2", expired]);
            sleep(Duration::from_millis(10));
            let answer = transaction(&mut connection, &["CLIENT PAUSE 60000 WRITE", &within, call]);
            run::<()>(&mut server.connect(), "CLIENT UNPAUSE")
                .unwrap_or_else(|error| panic!("{call}, {within}: {error}\n{}", server.log()));
            let _ = run::<Value>(&mut connection, &format!("CLUSTER ADDSLOTS {slot}"));
            run::<()>(&mut connection, &stable).unwrap();
            let taken = 4 - run::<[i64; 5]>(&mut connection, "CL.LOOK {k}2 5 1 60").unwrap()[2];
            match answer {
                Err(error) => assert_eq!((error.code(), taken), (Some("TRYAGAIN"), 0), "{call}, {within}: {error}"),
                // Redis 6.2 still finds the expired key, and the call writes it.
                Ok(_) => assert!(is_redis_6_2(), "{call}, {within}: the call was not refused"),
            }
        }
    }
}

/// A node that imports a slot reads the source's stream as a replica does, but Valkey's INFO does not count it as a
/// replica. The test stops that node until the process that writes the snapshot has ended and a call has been made. The
/// call is then part of the stream that follows the snapshot.
#[test]
#[ignore = "slow: a cluster"]
fn a_node_that_imports_slots_is_sent_effects_not_calls() {
    needs!(MOVING_SLOTS);
    let [source, target] = two_nodes(&["--hz", "100", "--loadmodule", compiled("callbacks")]);
    let (mut from, mut to) = (source.connect(), target.connect());
    // Make the source sleep for a second after the fork, so that the test can stop the target in that time.
    run::<()>(&mut from, "CB.DO fork DEBUG SLEEP 1").unwrap();
    let mut probe = source.connect();
    probe.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let slot: i64 = run(&mut from, "CLUSTER KEYSLOT {key}").unwrap();
    assert_reply(&mut from, "CL.CHARGE {key} 9 1 3600 1", &[0, 10, 9]);
    if run::<Value>(&mut to, &format!("CLUSTER MIGRATION IMPORT {slot} {slot}")).is_err() {
        let migrate = format!("CLUSTER MIGRATESLOTS SLOTSRANGE {slot} {slot} NODE {}", id(&target));
        run::<Value>(&mut from, &migrate).unwrap();
    }
    wait_until("the snapshot's process starts", || run::<()>(&mut probe, "PING").is_err());
    signal(target.pid(), "STOP");
    run::<()>(&mut from, "PING").unwrap();
    sleep(Duration::from_millis(300));
    // Redis replies only after the slot has moved, and the reply is MOVED.
    from.send_packed_command(&command("CL.CHARGE {key} 9 1 3600 1").get_packed_command()).unwrap();
    sleep(Duration::from_millis(100));
    signal(target.pid(), "CONT");
    let remaining = if matches!(from.recv_response().unwrap(), Value::Array(_)) { 8 } else { 9 };
    let look = || run::<[i64; 5]>(&mut to, "CL.LOOK {key} 9 1 3600").ok();
    assert_eq!(wait_for("the slot moves", look)[2], remaining);
    let statistics: String = run(&mut to, "INFO commandstats").unwrap();
    assert!(!statistics.contains("cmdstat_cl.charge:"), "the target was sent the call itself: {statistics}");
}

fn id(node: &Server) -> String {
    run(&mut node.connect(), "CLUSTER MYID").unwrap()
}
