//! Moves from redis_rate to this module.

use std::process::Command;

use crate::support::needs::needs;
use crate::support::pages::command_of;
use crate::support::programs::output;
use crate::support::{Server, now, run, throttle};

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
