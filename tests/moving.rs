//! Whoever moves here from another limiter keeps the limits.

use std::fs;

use redis::Script;

use crate::support::{Server, now, run, throttle};

#[test]
fn an_aof_of_brandurs_redis_cell_is_loaded() {
    let mut server = Server::start_with(&["--appendonly", "yes"]);
    server.kill();
    // As redis-cell left it: calls, instead of their effects. In the format of Redis 6, which newer servers convert.
    let call = "*5\r\n$11\r\nCL.THROTTLE\r\n$3\r\nkey\r\n$1\r\n4\r\n$1\r\n1\r\n$2\r\n60\r\n";
    let _ = fs::remove_dir_all(server.folder.join("appendonlydir"));
    fs::write(server.folder.join("appendonly.aof"), call.repeat(2)).unwrap();
    server.restart();
    let mut connection = server.connect();
    assert_eq!(throttle(&mut connection, "key 4 1 60 0"), [0, 5, 3, -1, 120]);
}

#[test]
fn a_limiter_of_redis_rate_goes_on_where_it_was() {
    const YEAR_2017: f64 = 1_483_228_800.0;
    let server = Server::start();
    let mut connection = server.connect();
    let script = Script::new(include_str!("moving/from_redis_rate.lua"));
    let mut moved = |from: &str| -> bool {
        let mut keys = script.key(from);
        keys.key("moved").invoke(&mut connection).unwrap()
    };
    assert!(!moved("rate:key"));

    // 5 a minute, a burst of 10, of which 4 are taken.
    let moment = now() as f64 / 1e9 - YEAR_2017 + 48.0;
    let mut connection = server.connect();
    run::<()>(&mut connection, &format!("SET rate:key {moment} EX 48")).unwrap();
    assert!(moved("rate:key"));
    assert_eq!(throttle(&mut connection, "moved 9 5 60 0"), [0, 10, 6, -1, 48]);
    let expires: i64 = run(&mut connection, "PTTL moved").unwrap();
    assert!((46_000..=48_001).contains(&expires), "{expires}");
    // The old key is none of ours, and is left to those who still use it.
    let old: String = run(&mut connection, "GET rate:key").unwrap();
    assert_eq!(old, moment.to_string());
}
