//! A server may refuse to open a key for writing at some moments: Valkey 9.2, while it saves the key without a child
//! process. Such a call gets an error by which clients try again, and has changed nothing.
//!
//! The servers under test do not refuse. What does is a library between the module and the server: see unwritable.c.

use redis::{Connection, Value};

use crate::support::aof::AOF;
use crate::support::callbacks::start_with_unwritable_keys;
use crate::support::expected::in_group;
use crate::support::{Server, Snapshot, error_of, info, run, snapshot};

const REFUSAL: &str = "TRYAGAIN the key cannot be written at this moment";

/// All that a call may change.
fn state(connection: &mut Connection) -> (Snapshot, [String; 2]) {
    // First, as on Redis 6.2 the first one is written to the file.
    let keys = snapshot(connection);
    (keys, ["rdb_changes_since_last_save", "aof_current_size"].map(|field| info(connection, field)))
}

/// With a limiter of five tokens, two of which are taken, at a key that can be written and at one that cannot.
fn start() -> (Server, Connection) {
    let server = start_with_unwritable_keys(&[&AOF[..], &["--notify-keyspace-events", "KEAd"]].concat());
    let mut connection = server.connect();
    run::<Value>(&mut connection, "CL.THROTTLE key 4 1 3600 2").unwrap();
    // The library stands between the server and the module alone.
    let [text, expiry]: [String; 2] =
        [run(&mut connection, "GET key").unwrap(), run::<i64>(&mut connection, "PTTL key").unwrap().to_string()];
    run::<()>(&mut connection, &format!("SET unwritable {text} PX {expiry}")).unwrap();
    (server, connection)
}

#[test]
fn a_call_on_a_key_that_cannot_be_written_is_to_be_tried_again_and_changes_nothing() {
    let (_server, mut connection) = start();
    let before = state(&mut connection);
    // There, not there, and of another type: it cannot be opened to see what it is.
    for key in ["unwritable", "unwritable:new"] {
        for call in [
            "CL.THROTTLE % 4 1 3600",
            "CL.THROTTLE % 4 1 3600 9",
            "CL.THROTTLE % 4 1 3600 0",
            "CL.THROTTLE % 4 1 3600 -1",
            "CL.PTHROTTLE % 4 1 3600000 -9",
            "CL.CHARGE % 4 1 3600 9",
            "CL.PCHARGE % 4 1 3600000 -1",
            "CL.TAKE % 4 1 3600 9",
            "CL.PTAKE % 4 1 3600000 1",
        ] {
            let call = call.replace('%', key);
            assert_eq!(error_of(&mut connection, &call), REFUSAL, "{call}");
        }
    }
    // What is wrong with the arguments is said first.
    assert_eq!(error_of(&mut connection, "CL.THROTTLE unwritable 4 1 0"), "ERR period must be 1 or more");
    assert_eq!(state(&mut connection), before);
    let counts: String = run(&mut connection, "INFO redis-cell").unwrap();
    for count in ["throttle_errors:9", "throttle_limited:0", "take_errors:2", "charge_errors:2"] {
        assert!(counts.contains(&format!("redis-cell_{count}\r\n")), "{counts}");
    }
    // A look needs not write.
    let reply: [i64; 5] = run(&mut connection, "CL.LOOK unwritable 4 1 3600").unwrap();
    assert_eq!(reply[..4], [0, 5, 3, -1]);
}

#[test]
fn of_several_limiters_none_is_written_if_one_cannot_be_wherever_it_stands() {
    let (_server, mut connection) = start();
    for name in ["CL.MTHROTTLE", "CL.MPTHROTTLE"] {
        for number in 1..=4 {
            for unwritable in ["unwritable", "unwritable:new"] {
                for quantity in [1, 0, -1, 9] {
                    let before = state(&mut connection);
                    let mut keys = vec!["key", "new", "other"];
                    keys.insert(number - 1, unwritable);
                    let groups: Vec<_> = keys.iter().map(|key| format!("{key} 4 1 3600 {quantity}")).collect();
                    let call = format!("{name} {}", groups.join(" "));
                    assert_eq!(error_of(&mut connection, &call), in_group(number, REFUSAL.into()), "{call}");
                    assert_eq!(state(&mut connection), before, "{call}");
                }
            }
        }
    }
    // The first of two.
    let call = "CL.MTHROTTLE unwritable:1 4 1 3600 1 unwritable:2 4 1 3600 1";
    assert_eq!(error_of(&mut connection, call), in_group(1, REFUSAL.into()));
}

/// A transaction goes on with its next command, a script has to look at the reply: as with any error.
#[test]
fn in_transactions_and_scripts_it_is_an_error_like_any_other() {
    let (_server, mut connection) = start();
    let script = "return redis.pcall('CL.THROTTLE', KEYS[1], 4, 1, 3600).err";
    let told: String = redis::cmd("EVAL").arg(script).arg(&["1", "unwritable"]).query(&mut connection).unwrap();
    assert!(told.starts_with(REFUSAL), "{told}");
    let mut transaction = redis::pipe();
    transaction.atomic();
    for key in ["key", "unwritable", "key"] {
        transaction.cmd("CL.THROTTLE").arg(&[key, "4", "1", "3600"]);
    }
    transaction.query::<Value>(&mut connection).unwrap_err();
    // Both others have taken one.
    assert_eq!(run::<[i64; 5]>(&mut connection, "CL.THROTTLE key 4 1 3600 0").unwrap()[2], 1);
}
