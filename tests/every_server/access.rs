//! Tests the flags, ACL categories and key positions by which the server decides whether to refuse a call. A refused
//! call changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use redis::{Connection, Value};

use crate::support::needs::{REDIS_7, has_acl_categories, is_redis_6_2, needs};
use crate::support::pages::blocks;
use crate::support::{COMMANDS, Server, compiled, info, module, run, run_all};

/// Returns the code of the error that the call gets. Fails if a refused call changed anything.
fn refusal(connection: &mut Connection, call: &str) -> Option<String> {
    let error = run::<Value>(connection, call).err()?;
    assert_eq!(info(connection, "rdb_changes_since_last_save"), "0", "{call} changed something: {error}");
    error.code().map(String::from)
}

#[test]
fn the_commands_are_registered_with_their_arity_keys_flags_categories_and_tips() {
    assert_registered(&Server::start(), !is_redis_6_2());
}

/// Redis 6.2 does not accept descriptions of commands. It uses the keys and flags given at registration.
#[test]
fn commands_that_are_not_described_are_registered_with_the_same_keys_and_flags() {
    let lacks_descriptions = ["--loadmodule", compiled("shim"), "RedisModule_GetCommand", module()];
    assert_registered(&Server::start_bare(&lacks_descriptions), false);
}

fn assert_registered(server: &Server, is_described: bool) {
    let known: Vec<Vec<Value>> = run(&mut server.connect(), "COMMAND").unwrap();
    let known = known.into_iter().map(|info| (redis::from_redis_value_ref::<String>(&info[0]).unwrap(), info));
    let known: BTreeMap<_, _> = known.filter(|(name, _)| name.starts_with("cl.")).collect();
    let unknown: Vec<_> = known.keys().filter(|name| COMMANDS.iter().all(|command| command.name != **name)).collect();
    assert!(unknown.is_empty(), "tests/support/commands.rs has no row for {unknown:?}");
    for command in &COMMANDS {
        let (name, info) = (command.name, &known[command.name]);
        // Without a description, the module itself checks the number of arguments.
        let least = if is_described { -(command.required().count() as i64) - 1 } else { -1 };
        let [last_key, step] = if command.takes_several_keys() { [-1, 5] } else { [1, 1] };
        let places = [&info[1..2], &info[3..6]].concat();
        assert_eq!(places, [least, 1, last_key, step].map(Value::Int), "{name}");
        // The server adds the flags "module" and "movablekeys" itself.
        let flags = sorted(&info[2]).into_iter().filter(|flag| !["module", "movablekeys"].contains(&flag.as_str()));
        // A command with several limiters is not "fast", because a call on many limiters takes longer.
        let (expected, categories) = match command.only_reads() {
            true => (&["fast", "readonly"][..], ["@fast", "@read"]),
            false if command.takes_several_keys() => (&["denyoom", "write"][..], ["@slow", "@write"]),
            false => (&["denyoom", "fast", "write"][..], ["@fast", "@write"]),
        };
        assert_eq!(flags.collect::<Vec<_>>(), expected, "{name}");
        if is_described {
            assert!(!has_acl_categories() || sorted(&info[6]) == categories, "{name} has wrong categories: {info:?}");
            // Redis 6.2 has no command tips.
            assert!(
                info.get(7).is_none_or(|tips| sorted(tips) == ["nondeterministic_output"]),
                "{name} has wrong tips: {info:?}"
            );
        }
    }
}

fn sorted(names: &Value) -> Vec<String> {
    let mut names: Vec<String> = redis::from_redis_value_ref(names).unwrap();
    names.sort();
    names
}

/// The test's user has the permission that the documentation gives for CL.LOOK.
#[test]
fn the_server_knows_the_keys_of_a_call_and_whether_they_are_only_read() {
    needs!(REDIS_7);
    let (_server, mut user) = Server::start().connected();
    let permissions =
        blocks().into_iter().filter_map(|block| Some(block.text.strip_prefix('%')?.split_once('~')?.0.to_string()));
    let permissions: BTreeSet<_> = permissions.collect();
    assert_eq!(permissions.len(), 1, "the pages do not name exactly one permission: {permissions:?}");
    let to_read = permissions.first().unwrap();
    run_all(&mut user, &[&format!("ACL SETUSER user on nopass %{to_read}~a +@all"), "AUTH user x"]);
    for command in &COMMANDS {
        let expected: &[_] = match command.only_reads() {
            true => &["RO", "access"],
            false => &["RW", "access", "update"],
        };
        for mut call in command.calls("a") {
            let code = (!command.only_reads()).then_some("NOPERM");
            assert_eq!(refusal(&mut user, &call).as_deref(), code, "{call} by a user who may only read the key");
            let mut names = vec!["a"];
            if command.takes_several_keys() {
                // The server also finds the key of an incomplete group of arguments.
                call += " b";
                names.push("b");
            }
            let keys: Vec<(String, Vec<String>)> = run(&mut user, &format!("COMMAND GETKEYSANDFLAGS {call}")).unwrap();
            let (found, flags): (Vec<_>, Vec<_>) = keys.into_iter().unzip();
            assert!(
                found == names && flags.iter().all(|flags| flags == expected),
                "{call} has the keys {found:?} with {flags:?}"
            );
        }
    }
}

/// Both servers refuse even CL.LOOK, just as they refuse GET.
#[test]
fn a_cluster_that_is_down_and_a_replica_that_serves_no_stale_data_refuse_every_call() {
    // The node has no slots. The replica's primary does not exist.
    let mut node = Server::start_with(&["--cluster-enabled", "yes"]).connected();
    let stale = ["--replicaof", "127.0.0.1", "1", "--replica-serve-stale-data", "no"];
    let mut replica = Server::start_with(&stale).connected();
    for command in &COMMANDS {
        let of_a_replica = if command.only_reads() { "MASTERDOWN" } else { "READONLY" };
        for call in command.calls("key") {
            assert_eq!(refusal(&mut node.1, &call).as_deref(), Some("CLUSTERDOWN"), "{call}");
            assert_eq!(refusal(&mut replica.1, &call).as_deref(), Some(of_a_replica), "{call}");
        }
    }
}
