//! The table of errors: each command refuses the same with the same text, and changes nothing at all. hostile/calls.rs
//! makes every other mistake.

use redis::{Connection, Value};

use crate::support::aof::AOF;
use crate::support::expected::{NOT_A_STATE, TOO_FAST, TOO_LARGE, WRONG_TYPE};
use crate::support::{COMMANDS, Server, error_of, info, run, snapshot};

#[test]
fn every_command_refuses_the_same_with_the_same_text_and_changes_nothing() {
    let server = Server::start_with(&AOF);
    let mut connection = server.connect();
    run::<()>(&mut connection, "SET text hello EX 1000").unwrap();
    run::<()>(&mut connection, "RPUSH list a").unwrap();
    let traces = |connection: &mut Connection| {
        // Read the keys first: Redis 6.2 writes the first script to the file.
        let keys = snapshot(connection);
        (keys, ["rdb_changes_since_last_save", "aof_current_size"].map(|field| info(connection, field)))
    };
    let before = traces(&mut connection);
    let least = i64::MIN;
    let most = i64::MAX;
    let with_a_quota = || COMMANDS.iter().filter(|command| command.takes_a_quota()).map(|command| command.name);
    for (arguments, expected) in [
        ("", "ERR wrong number of arguments for '%' command"),
        ("key 1 1", "ERR wrong number of arguments for '%' command"),
        ("key x 1 1 1", "ERR max_burst is not an integer or out of range"),
        ("key 1 +1 1 1", "ERR count is not an integer or out of range"),
        ("key 1 1 1.5 1", "ERR period is not an integer or out of range"),
        ("key 1 1 1 01", "ERR quantity is not an integer or out of range"),
        ("key -2 1 1 1", "ERR max_burst must be -1 or more"),
        ("key 1 0 1 1", "ERR count must be 1 or more"),
        (&format!("key 1 1 {least} 1"), "ERR period must be 1 or more"),
        (&format!("key 1 {most} 1 1"), TOO_FAST),
        (&format!("key {most} 1 1 1"), TOO_LARGE),
        (&format!("key 1 1 {most} 1"), TOO_LARGE),
        ("text 1 1 1 1", NOT_A_STATE),
        ("list 1 1 1 1", WRONG_TYPE),
        // All arguments are checked before the key is.
        ("list 1 1 0 1", "ERR period must be 1 or more"),
    ] {
        for name in with_a_quota() {
            let error = error_of(&mut connection, &format!("{name} {arguments}"));
            let error = error.trim_end_matches(" (group 1)");
            assert_eq!(error, expected.replace('%', name), "{name} {arguments}");
        }
    }
    // A negative quantity gives tokens back, except to the commands whose quantity must be 0 or more.
    for name in with_a_quota() {
        let reply = run::<Value>(&mut connection, &format!("{name} key 1 1 1 -1"));
        let never = ["cl.take", "cl.ptake", "cl.look", "cl.plook"].contains(&name);
        let error = reply.err().map(|error| error.detail().unwrap().to_string());
        assert_eq!(error.as_deref(), never.then_some("quantity must be 0 or more"), "{name}");
    }
    assert_eq!(traces(&mut connection), before);
}

#[test]
fn every_command_is_answered_with_all_its_arguments_and_with_one_fewer_refused() {
    let server = Server::start();
    let mut connection = server.connect();
    for command in &COMMANDS {
        for call in command.calls("key") {
            run::<Value>(&mut connection, &call).unwrap();
            let (fewer, _) = call.rsplit_once(' ').unwrap();
            let error = error_of(&mut connection, fewer);
            assert_eq!(error, format!("ERR wrong number of arguments for '{}' command", command.name), "{fewer}");
        }
    }
}
