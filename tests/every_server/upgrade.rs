//! Moves from redis_rate to this module, and from one library of it to the next.

use std::fs;
use std::process::Command;

use crate::support::aof::AOF;
use crate::support::needs::needs;
use crate::support::pages::command_of;
use crate::support::programs::output;
use crate::support::{Server, module, new_folder, now, run, throttle};

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
