//! Tests calls on keys that cannot be opened for writing, such as those that Valkey 9.2 is saving without a fork.
//! shim.c imitates this on every server. A refused call changes nothing.

use redis::{Connection, Value};

use crate::support::aof::AOF;
use crate::support::compiling::load_with_unwritable_keys;
use crate::support::expected::{NOT_A_STATE, TRY_AGAIN, WRONG_TYPE, in_group};
use crate::support::{Server, Snapshot, assert_reply, error_of, info, run, snapshot};

/// Returns everything that a call may change: the keys, the count of changes, and the size of the append-only file.
fn state(connection: &mut Connection) -> (Snapshot, [String; 2]) {
    // Read the keys first: `snapshot` runs a script, and Redis 6.2 writes the first script to the append-only file.
    let keys = snapshot(connection);
    (keys, ["rdb_changes_since_last_save", "aof_current_size"].map(|field| info(connection, field)))
}

/// Starts a server with two limiters: one at a writable key, and a copy at an unwritable key. Each has five tokens, two
/// of which are taken.
fn start_with_an_unwritable_key() -> (Server, Connection) {
    let load = load_with_unwritable_keys();
    let (server, mut connection) =
        Server::start_bare(&[&load[..], &AOF, &["--notify-keyspace-events", "KEAd"]].concat()).connected();
    run::<Value>(&mut connection, "CL.THROTTLE key 4 1 3600 2").unwrap();
    // COPY can write the unwritable key, because shim.c refuses only the module's writes.
    run::<()>(&mut connection, "COPY key unwritable").unwrap();
    (server, connection)
}

#[test]
fn a_call_on_a_key_that_cannot_be_written_replies_tryagain_and_changes_nothing() {
    let (_server, mut connection) = start_with_an_unwritable_key();
    let before = state(&mut connection);
    for (call, error) in [
        // The reply is the same whether the key exists or not: the module cannot open the key to find out.
        ("CL.THROTTLE unwritable 4 1 3600", TRY_AGAIN.into()),
        ("CL.THROTTLE unwritable 4 1 3600 0", TRY_AGAIN.into()),
        ("CL.CHARGE unwritable:new 4 1 3600 -1", TRY_AGAIN.into()),
        ("CL.PTAKE unwritable:new 4 1 3600000 9", TRY_AGAIN.into()),
        ("CL.MTHROTTLE key 4 1 3600 1 new 4 1 3600 1 unwritable 4 1 3600 1", in_group(3, TRY_AGAIN)),
        ("CL.MTHROTTLE unwritable:1 4 1 3600 1 unwritable:2 4 1 3600 1", in_group(1, TRY_AGAIN)),
        // Errors in the arguments are reported first.
        ("CL.THROTTLE unwritable 4 1 0", "ERR period must be 1 or more".into()),
    ] {
        assert_eq!(error_of(&mut connection, call), error, "{call}");
        assert_eq!(state(&mut connection), before, "{call}");
    }
}

/// CL.LOOK works with one quota and with several. The module reads the key with GET, because reading the key directly
/// would crash the server.
#[test]
fn a_look_at_a_key_that_cannot_be_written_is_answered() {
    let (_server, mut connection) = start_with_an_unwritable_key();
    assert_reply(&mut connection, "CL.LOOK unwritable 4 1 3600", &[0, 5, 3, -1]);
    assert_reply(&mut connection, "CL.LOOK unwritable 4 1 3600 1 1 1 60", &[0, 2, 2, -1, 0, 2]);
    assert_reply(&mut connection, "CL.LOOK unwritable:new 4 1 3600", &[0, 5, 5, -1, 0]);
    run::<()>(&mut connection, "SET unwritable:text text").unwrap();
    run::<()>(&mut connection, "RPUSH unwritable:list text").unwrap();
    for quotas in ["4 1 3600", "4 1 3600 1 1 1 60"] {
        for (key, error) in [("text", NOT_A_STATE), ("list", WRONG_TYPE)] {
            assert_eq!(error_of(&mut connection, &format!("CL.LOOK unwritable:{key} {quotas}")), error, "{quotas}");
        }
    }
}
