//! CL.MTHROTTLE decides several limits at once: all of them take, or none.

use redis::{Connection, Value};

use crate::support::cluster::{SLOTS, add_slots, is_ok};
use crate::support::{Server, error_of, run, wait_until};

/// Calls `CL.MTHROTTLE`. Returns whether the call was limited, and the integers of each group.
fn mthrottle(connection: &mut Connection, arguments: &str) -> (bool, Vec<[i64; 5]>) {
    let Value::Array(reply) = run(connection, &format!("CL.MTHROTTLE {arguments}")).unwrap() else { panic!() };
    let limited = redis::from_redis_value_ref(&reply[0]).unwrap();
    (limited, reply[1..].iter().map(|group| redis::from_redis_value_ref(group).unwrap()).collect())
}

#[test]
fn an_incomplete_group_is_an_error() {
    let server = Server::start();
    let mut connection = server.connect();
    let arity = "ERR wrong number of arguments for 'cl.mthrottle' command";
    for arguments in ["", "a", "a 4 1 60"] {
        // Redis 6.2 names a module's command in the caller's own spelling.
        let text =
            error_of(&mut connection, &format!("CL.MTHROTTLE {arguments}")).replace("CL.MTHROTTLE", "cl.mthrottle");
        assert_eq!(text, arity, "{arguments}");
    }
    for (arguments, expected) in [
        ("a 4 1 60 1 b", "ERR max_burst is missing (group 2)"),
        ("a 4 1 60 1 b 4 1 60", "ERR quantity is missing (group 2)"),
        ("a 4 1 60 1 b 4 1 60 1 c 4", "ERR count is missing (group 3)"),
    ] {
        assert_eq!(error_of(&mut connection, &format!("CL.MTHROTTLE {arguments}")), expected, "{arguments}");
    }
    assert_eq!(run::<i64>(&mut connection, "DBSIZE").unwrap(), 0);
}

#[test]
fn many_groups_in_one_call() {
    let server = Server::start();
    let mut connection = server.connect();
    let mut call = redis::cmd("CL.MTHROTTLE");
    for group in 0..10_000 {
        call.arg(format!("key{group}")).arg(4).arg(1).arg(60).arg(1);
    }
    let Value::Array(reply) = call.query(&mut connection).unwrap() else { panic!() };
    assert_eq!(reply.len(), 10_001);
    assert_eq!(reply[0], Value::Int(0));
    assert!(reply[1..].iter().all(|group| *group == Value::Array([0, 5, 4, -1, 60].map(Value::Int).to_vec())));
}

#[test]
#[ignore = "slow: a cluster"]
fn the_keys_share_a_hash_tag_in_a_cluster() {
    let server = Server::start_with(&["--cluster-enabled", "yes"]);
    let mut connection = server.connect();
    add_slots(&mut connection, 0..SLOTS);
    wait_until("a cluster of one", || is_ok(&server));
    assert!(!mthrottle(&mut connection, "{user1}:second 4 1 60 1 {user1}:day 4 1 60 1").0);
    let refused = error_of(&mut connection, "CL.MTHROTTLE user1 4 1 60 1 user2 4 1 60 1");
    assert!(refused.starts_with("CROSSSLOT"), "{refused}");
}
