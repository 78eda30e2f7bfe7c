//! Checks what the documentation says about servers: errors, permissions, upgrades, and scripts that suppress
//! replication.

use std::env;
use std::fs::{self, File};
use std::io::Read;
use std::net::TcpStream;
use std::path::Path;

use redis::{Client, Value};
use tempfile::TempDir;

use crate::every_server::upgrade::start_sentinel;
use crate::support::aof::{AOF, commands};
use crate::support::needs::{is_redis_6_2, is_valkey, leave_out};
use crate::support::pages::{ROOT, code, section, text_of};
use crate::support::replication::SETTINGS;
use crate::support::{
    PATIENCE, Process, Server, assert_reply, ends_with_the_test, error_of, free_port, info, module, new_folder, run,
    run_all, throttle, transaction, wait_until,
};

#[test]
fn within_multi_a_look_at_maxmemory_gets_oom_only_up_to_redis_7_2_like_get() {
    let settings = ["--maxmemory", "1", "--maxmemory-policy", "noeviction"];
    let (_server, mut connection) = Server::start_with(&settings).connected();
    let version = info(&mut connection, "redis_version");
    for call in ["CL.LOOK key 4 1 60", "GET key"] {
        let refused = transaction(&mut connection, &[call]).is_err();
        let is_older = !is_valkey() && ["6.2.", "7.0.", "7.2."].iter().any(|older| version.starts_with(older));
        assert_eq!(refused, is_older, "{call}");
    }
}

/// Checks two errors from the table in docs/commands.md.
#[test]
fn a_server_without_the_module_and_one_with_too_many_connections_say_so() {
    let (server, mut connection) = Server::start_bare(&["--maxclients", "1"]).connected();
    let error = error_of(&mut connection, "CL.THROTTLE key 4 1 60");
    assert!(error.starts_with("ERR unknown command"), "a server without the module replies {error}");
    let mut refused = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    refused.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut error = String::new();
    refused.read_to_string(&mut error).unwrap();
    assert_eq!(error, "-ERR max number of clients reached\r\n");
    assert_eq!(info(&mut connection, "rejected_connections"), "1");
}

#[test]
fn a_script_keeps_a_call_from_the_aof_only_on_redis_6_2() {
    let (server, mut connection) = Server::start_with(&AOF).connected();
    let script = "redis.replicate_commands() redis.set_repl(redis.REPL_NONE)
        return redis.call('CL.THROTTLE', KEYS[1], 4, 1, 60)";
    redis::cmd("EVAL").arg(script).arg(1).arg("of_a_script").exec(&mut connection).unwrap();
    throttle(&mut connection, "of_a_client 4 1 60");
    let is_written = |key: &str| commands(&server.folder).iter().any(|words| words.iter().any(|word| word == key));
    wait_until("the AOF has the second call", || is_written("of_a_client"));
    assert_eq!(is_written("of_a_script"), !is_redis_6_2());
}

/// Both servers and the Sentinel use only the users from docs/operating.md. With these users, the replica can follow
/// its primary and be promoted.
#[test]
#[ignore = "slow: Sentinel waits"]
fn the_users_on_the_page_are_enough_for_a_limiter_a_replica_and_a_sentinel() {
    let page = text_of("docs/operating.md");
    let permissions = section(&page, "## Permissions");
    let commands: Vec<_> = permissions.lines().filter_map(|line| line.strip_prefix("127.0.0.1:6379> ")).collect();
    let servers = [(); 2].map(|()| Server::start_with(&SETTINGS));
    let mut users = servers.each_ref().map(Server::connect);
    for user in &mut users {
        run_all(user, &commands);
        run_all(user, &["CONFIG SET masteruser replica", "CONFIG SET masterauth secret"]);
    }
    let [primary, replica] = &servers;
    assert!(primary.client().get_connection().and_then(|mut anyone| run::<()>(&mut anyone, "PING")).is_err());
    run::<()>(&mut users[1], &format!("REPLICAOF 127.0.0.1 {}", primary.port)).unwrap();
    wait_until("the replica follows", || info(&mut users[1], "master_link_status") == "up");

    let logins: Vec<_> = code(permissions).filter(|code| code.starts_with("sentinel auth-")).collect();
    assert_eq!(logins.len(), 2, "the page has these logins: {logins:?}");
    let folder = new_folder();
    let (_sentinel, port) = start_sentinel(folder.path(), primary, replica, &logins.join("\n"));
    let mut sentinel = Client::open(format!("redis://127.0.0.1:{port}/")).unwrap().get_connection().unwrap();
    wait_until("Sentinel accepts the failover", || run::<()>(&mut sentinel, "SENTINEL FAILOVER limits").is_ok());
    wait_until("Sentinel promotes the replica", || {
        let address = run::<[String; 2]>(&mut sentinel, "SENTINEL get-master-addr-by-name limits").unwrap();
        address[1] == replica.port.to_string()
    });

    // Connect again, because Sentinel closes the clients' connections to the new primary during the promotion.
    let log_in = |user: &str| {
        let mut connection = replica.connect();
        run::<()>(&mut connection, &format!("AUTH {user}")).unwrap();
        connection
    };
    assert_reply(&mut log_in("limiter secret"), "CL.THROTTLE limit:a 4 1 60", &[0, 5, 4]);
    let error = error_of(&mut log_in("limiter secret"), "CLUSTER SLOTS");
    assert!(error.starts_with("NOPERM "), "the limiter gets {error}, not NOPERM");
    let denied = format!("{:?}", run::<Value>(&mut log_in("admin-secret"), "ACL LOG").unwrap());
    assert!(denied.contains("cluster"), "ACL LOG does not have the denied call: {denied}");
}

/// The server under test takes over from Redis 6.2, the oldest server. Redis 6.2 cannot take over in turn, because it
/// refuses the newer server's snapshot.
#[test]
fn a_newer_server_takes_over_the_limiters_of_an_older_one_but_not_the_other_way_round() {
    let old = Path::new(ROOT).join("target/servers/redis-6.2/redis-server");
    // If MODULE_CC is set, the library is for another platform, and the old server cannot load it.
    if is_redis_6_2() || !old.exists() || env::var_os("MODULE_CC").is_some() {
        leave_out("needs a newer server, target/servers/redis-6.2, and a library for this machine");
        return;
    }
    let folders = [new_folder(), new_folder()];
    let log = folders[1].path().join("log");
    let start = |folder: &TempDir, more: &[&str]| {
        let (port, mut command) = (free_port(), ends_with_the_test(&old));
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--loadmodule", module()]);
        command.arg("--dir").arg(folder.path()).args(more).env("LC_ALL", "C");
        (Process::start(command.stdout(File::create(folder.path().join("log")).unwrap())), port)
    };
    let (_primary, port) = start(&folders[0], &[]);
    let client = Client::open(format!("redis://127.0.0.1:{port}/")).unwrap();
    wait_until("the old server starts", || client.get_connection().is_ok());
    throttle(&mut client.get_connection().unwrap(), "key 4 1 3600 3");

    let (server, mut connection) = Server::start_with(&SETTINGS).connected();
    run::<()>(&mut connection, &format!("REPLICAOF 127.0.0.1 {port}")).unwrap();
    wait_until("the new server follows", || info(&mut connection, "master_link_status") == "up");
    run::<()>(&mut connection, "REPLICAOF NO ONE").unwrap();
    assert_reply(&mut connection, "CL.LOOK key 4 1 3600", &[0, 5, 2]);

    let _replica = start(&folders[1], &["--replicaof", "127.0.0.1", &server.port.to_string()]);
    let refusal = "Can't handle RDB format version";
    wait_until("the old server refuses the snapshot", || fs::read_to_string(&log).unwrap().contains(refusal));
}
