//! Moves from another limiter to this module, back from it, and from one library of it to the next.

use std::fs;
use std::process::Command;

use crate::support::aof::AOF;
use crate::support::needs::needs;
use crate::support::pages::command_of;
use crate::support::programs::output;
use crate::support::replication::{catch_up, replicate};
use crate::support::{Server, module, new_folder, now, redis_cell, run, snapshot, throttle};

/// The replica gets the calls themselves, limited ones too: this is how redis-cell replicates.
#[test]
fn a_replica_of_a_redis_cell_primary_takes_its_calls() {
    let primary = Server::start_bare(&["--loadmodule", redis_cell().to_str().unwrap()]);
    let replica = Server::start();
    replicate(&replica, &primary);
    let mut connection = primary.connect();
    for arguments in [
        "key 4 1 3600",
        "key 4 1 3600 2",
        "key 4 1 3600 5",
        "packets 999 1 3600 900",
        "packets 999 1 3600 -500",
        "other 15 30 86400 5",
    ] {
        throttle(&mut connection, arguments);
    }
    catch_up(&replica, &primary);
    let mut connection = replica.connect();
    run::<()>(&mut connection, "REPLICAOF NO ONE").unwrap();
    assert_eq!(throttle(&mut connection, "key 4 1 3600")[..3], [0, 5, 1]);
    assert_eq!(throttle(&mut connection, "other 15 30 86400 0")[..3], [0, 16, 11]);
    assert_eq!(throttle(&mut connection, "packets 999 1 3600 0")[..3], [0, 1000, 600]);
}

#[test]
fn a_limiter_of_redis_rate_goes_on_where_it_was() {
    const YEAR_2017: f64 = 1_483_228_800.0;
    needs!("redis-tools");
    let server = Server::start();
    let mut connection = server.connect();
    let line = command_of("from_redis_rate.lua", server.port);
    let carry = || output(Command::new("sh").args(["-c", &line]));
    assert_eq!(carry(), "0\n", "no limiter");

    // The limiter has 5 tokens a minute and a burst of 10; 4 are taken.
    let moment = now() as f64 / 1e9 - YEAR_2017 + 48.0;
    run::<()>(&mut connection, &format!("SET rate:user123 {moment} EX 48")).unwrap();
    assert_eq!(carry(), "1\n");
    assert_eq!(throttle(&mut connection, "user123 9 5 60 0"), [0, 10, 6, -1, 48]);
    let expires: i64 = run(&mut connection, "PTTL user123").unwrap();
    assert!((46_000..=48_001).contains(&expires), "{expires}");
    // The old key stays: other programs may still use it.
    let old: String = run(&mut connection, "GET rate:user123").unwrap();
    assert_eq!(old, moment.to_string());
    // A second carry gives back no tokens that were taken here.
    throttle(&mut connection, "user123 9 5 60 2");
    assert_eq!(carry(), "0\n");
    assert_eq!(throttle(&mut connection, "user123 9 5 60 0")[2], 4);
}

/// The test replaces the file as `install` and `mv` do. `cp` over the file would change the code that the server is
/// running.
#[test]
fn a_library_is_put_in_the_place_of_the_one_in_use_and_a_restart_takes_it() {
    let folder = new_folder();
    let library = folder.path().join("libredis_cell.so");
    fs::copy(module(), &library).unwrap();
    let mut server = Server::start_bare(&[&["--loadmodule", library.to_str().unwrap()], &AOF[..]].concat());
    let mut connection = server.connect();
    throttle(&mut connection, "key 4 1 3600");

    let new = folder.path().join("new");
    fs::copy(module(), &new).unwrap();
    fs::rename(&new, &library).unwrap();
    // Some of these calls run code that has not run before.
    for call in
        ["CL.PTHROTTLE key 4 1 3600000", "CL.MTHROTTLE key 4 1 3600 1 other 4 1 3600 1", "CL.THROTTLE key 4 1 3600 9"]
    {
        run::<redis::Value>(&mut connection, call).unwrap();
    }
    run::<redis::Value>(&mut connection, "CL.THROTTLE key 4 1 x").unwrap_err();
    run::<String>(&mut connection, "INFO redis-cell").unwrap();

    server.restart();
    let mut connection = server.connect();
    assert_eq!(throttle(&mut connection, "key 4 1 3600")[..3], [0, 5, 1]);
}

/// The state is a native string: the server itself can copy it.
#[test]
fn a_key_with_several_quotas_is_restored_and_migrated_whole() {
    let [server, other] = [(); 2].map(|()| Server::start());
    let mut connection = server.connect();
    run::<[i64; 6]>(&mut connection, "CL.THROTTLE key 9 1 60 3 99 1 3600").unwrap();
    let held = snapshot(&mut connection);
    let dump: Vec<u8> = run(&mut connection, "DUMP key").unwrap();
    let (_, expires_at) = held[&b"key"[..]];
    run::<()>(&mut connection, "DEL key").unwrap();
    redis::cmd("RESTORE").arg("key").arg(expires_at).arg(dump).arg("ABSTTL").exec(&mut connection).unwrap();
    assert_eq!(snapshot(&mut connection), held);
    run::<()>(&mut connection, &format!("MIGRATE 127.0.0.1 {} key 0 5000", other.port)).unwrap();
    assert_eq!(snapshot(&mut other.connect())[&b"key"[..]].0, held[&b"key"[..]].0);
}
