//! docs/moving/*.lua: states that are not as they should be.

use redis::Connection;

use crate::support::clock::Clock;
use crate::support::recipes::{START, eval, refuses};
use crate::support::{run, snapshot, throttle};

const REDIS_RATE: &str = "../moving/from_redis_rate.lua";

/// Fails unless the script replies 0 and changes nothing.
fn leaves(connection: &mut Connection, file: &str, words: &str) {
    let before = snapshot(connection);
    assert_eq!(eval::<i64>(connection, file, words), Ok(0), "{file} {words}");
    assert_eq!(snapshot(connection), before, "{file} {words}");
}

/// The module would refuse a key with a later moment for ever.
#[test]
fn the_last_moment_of_the_year_2262_is_carried_over_and_no_other_text_beyond_it() {
    let (_clock, _server, mut connection) = Clock::start(START);
    let error = "ERR the moment is after the year 2262";
    let set = |connection: &mut Connection, text: &str| run::<()>(connection, &format!("SET rate {text}")).unwrap();
    for moment in ["7740143237", "inf"] {
        set(&mut connection, moment);
        refuses(&mut connection, REDIS_RATE, "2 rate key", error);
    }
    for moment in ["nan", "-1e10", "x"] {
        set(&mut connection, moment);
        leaves(&mut connection, REDIS_RATE, "2 rate key");
    }
    // The last moment of a double.
    set(&mut connection, "7740143236.854");
    assert_eq!(eval::<i64>(&mut connection, REDIS_RATE, "2 rate last_of_rate"), Ok(1));
    throttle(&mut connection, "last_of_rate 9 5 60 0");
}

#[test]
fn a_key_that_holds_no_limiter_is_not_written_over() {
    let (_clock, _server, mut connection) = Clock::start(START);
    run::<()>(&mut connection, "SET rate 316771200").unwrap();
    for text in ["", "1", "-790000000123456789"] {
        redis::cmd("SET").arg("key").arg(text).exec(&mut connection).unwrap();
        refuses(&mut connection, REDIS_RATE, "2 rate key", "ERR the second key holds no rate limiter state");
    }
}
