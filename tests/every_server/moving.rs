//! Tests the script that copies redis_rate's limiters, with the command in docs/moving.md.

use std::process::Command;

use crate::support::clock::{Clock, SECOND, START};
use crate::support::needs::{REDIS_CLI, needs};
use crate::support::pages::{ROOT, text_of};
use crate::support::programs::output;
use crate::support::{run, throttle};

/// The limiter holds up to 10 tokens, and gets 5 back every minute. Four tokens are taken.
#[test]
fn a_limiter_of_redis_rate_continues_where_it_left_off() {
    const YEAR_2017: i64 = 1_483_228_800;
    needs!(REDIS_CLI);
    let page = text_of("docs/moving.md");
    let command = page.lines().find_map(|line| line.strip_prefix("    redis-cli --eval")).unwrap();
    let (_clock, server, mut connection) = Clock::start(START - START % SECOND);
    let copy = || {
        let line = format!("redis-cli -p {} --eval {command}", server.port);
        output(Command::new("sh").args(["-c", &line]).current_dir(ROOT))
    };
    assert_eq!(copy(), "0\n", "there is no limiter to copy");
    run::<()>(&mut connection, &format!("SET rate:user123 {} EX 48", START / SECOND - YEAR_2017 + 48)).unwrap();
    assert_eq!(copy(), "1\n");
    assert_eq!(throttle(&mut connection, "user123 9 5 60 0"), [0, 10, 6, -1, 48]);
    assert_eq!(run::<i64>(&mut connection, "PTTL user123").unwrap(), 48_000);
    // Copying again does not give back tokens that were taken after the first copy.
    throttle(&mut connection, "user123 9 5 60 2");
    assert_eq!(copy(), "0\n");
    assert_eq!(throttle(&mut connection, "user123 9 5 60 0")[2], 4);
    // A key with several quotas is not overwritten, even if its first timestamp is earlier than the copied one.
    let several = "1".repeat(38);
    run::<()>(&mut connection, &format!("SET user123 {several}")).unwrap();
    assert_eq!(copy(), "0\n");
    assert_eq!(run::<String>(&mut connection, "GET user123").unwrap(), several);
    // This limiter's TAT is 1,800,000,000,000 ms. Without formatting, a script on Redis 7.2 would write it as 1.8e12.
    run::<()>(&mut connection, "DEL user123").unwrap();
    run::<()>(&mut connection, "SET rate:user123 316771200").unwrap();
    assert_eq!(copy(), "1\n");
    run::<()>(&mut connection, "SET rate:user123 nineteen-characters").unwrap();
    assert_eq!(copy(), "0\n", "the value is not a number");
}
