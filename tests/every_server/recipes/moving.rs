//! docs/moving/*.lua: states that are not as they should be.

use redis::Connection;

use crate::support::clock::Clock;
use crate::support::recipes::{START, eval, refuses};
use crate::support::{run, snapshot, throttle};

/// Fails unless the script replies 0 and changes nothing.
fn leaves(connection: &mut Connection, file: &str, words: &str) {
    let before = snapshot(connection);
    assert_eq!(eval::<i64>(connection, file, words), Ok(0), "{file} {words}");
    assert_eq!(snapshot(connection), before, "{file} {words}");
}

/// The module would refuse such a key for ever.
#[test]
fn no_moment_beyond_the_year_2262_is_carried_over() {
    let (_clock, _server, mut connection) = Clock::start(START);
    let dragonfly = "../moving/from_dragonfly.lua";
    let error = "ERR the moment is after the year 2262";
    for moment in ["9223372036854775808", "9999999999999999999"] {
        refuses(&mut connection, dragonfly, &format!("1 key {moment}"), error);
    }
    for moment in ["", "nan", "179000000012345678", "0x90000000123456789", "-790000000123456789"] {
        leaves(&mut connection, dragonfly, &format!("1 key {moment}"));
    }
    let last = "9223372036854775807";
    assert_eq!(eval::<i64>(&mut connection, dragonfly, &format!("1 last {last}")), Ok(1));
    throttle(&mut connection, "last 9 5 60 0");

    let redis_rate = "../moving/from_redis_rate.lua";
    for moment in ["7740143237", "1e10", "1e300", "inf", "infinity"] {
        run::<()>(&mut connection, &format!("SET rate {moment}")).unwrap();
        refuses(&mut connection, redis_rate, "2 rate key", error);
    }
    for moment in ["nan", "-1e10", "-inf", "x", "1790000000123456789x"] {
        run::<()>(&mut connection, &format!("SET rate {moment}")).unwrap();
        leaves(&mut connection, redis_rate, "2 rate key");
    }
    // The last moment of a double.
    run::<()>(&mut connection, "SET rate 7740143236.854").unwrap();
    assert_eq!(eval::<i64>(&mut connection, redis_rate, "2 rate last_of_rate"), Ok(1));
    throttle(&mut connection, "last_of_rate 9 5 60 0");
}

#[test]
fn a_key_that_holds_no_limiter_is_not_written_over() {
    let (_clock, _server, mut connection) = Clock::start(START);
    run::<()>(&mut connection, "SET rate 316771200").unwrap();
    for text in ["", "1", "abc", "-790000000123456789", "17900000001234567891"] {
        redis::cmd("SET").arg("key").arg(text).exec(&mut connection).unwrap();
        let dragonfly = "../moving/from_dragonfly.lua";
        refuses(&mut connection, dragonfly, "1 key 1790000000123456789", "ERR the key holds no rate limiter state");
        let redis_rate = "../moving/from_redis_rate.lua";
        refuses(&mut connection, redis_rate, "2 rate key", "ERR the second key holds no rate limiter state");
        refuses(&mut connection, redis_rate, "2 rate rate", "ERR the second key holds no rate limiter state");
    }
}
