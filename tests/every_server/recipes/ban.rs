//! docs/recipes/ban.lua: a ban after too many attempts.

use redis::{Connection, Value};

use crate::support::clock::{Clock, MILLISECOND, SECOND};
use crate::support::recipes::{START, eval, read, refuses, user};
use crate::support::{run, snapshot, throttle};

/// Makes an attempt as ban.py does, with these numbers. Returns the milliseconds to wait, 0 to go on.
fn attempt(connection: &mut Connection, numbers: &str) -> i64 {
    let words: Vec<_> = numbers.split(' ').collect();
    let script = redis::Script::new(&read("ban.lua"));
    script.key(&["attempts", "banned", "offences"]).arg(words).invoke(connection).unwrap()
}

#[test]
fn a_ban_has_its_length_and_lasts_at_least_until_an_attempt_is_back() {
    let (clock, server, mut connection) = Clock::start(START);
    let mut app = user(&server, "docs/recipes.md", "## A ban after too many");
    let (hour, numbers) = (3_600_000, "4 1 60 86400 3600");
    assert_eq!((0..1_000).take_while(|_| attempt(&mut app, numbers) == 0).count(), 5);
    for (milliseconds, wait) in [(0, hour), (1_000, hour - 1_000), (hour - 1, 1), (hour, 1), (hour + 1, 0)] {
        clock.set(START + milliseconds * MILLISECOND);
        assert_eq!(attempt(&mut app, numbers), wait, "after {milliseconds} ms");
    }
    // One attempt comes back a day, so that a wait of the ban's hour would only lead into the next ban.
    run::<()>(&mut connection, "FLUSHALL").unwrap();
    let a_day = "0 1 86400 86400 3600";
    assert_eq!([(); 2].map(|()| attempt(&mut app, a_day)), [0, 86_400_000]);
    // A client knows by the error's code that a failover has made its server a replica.
    run::<()>(&mut connection, "FLUSHALL").unwrap();
    run::<()>(&mut connection, "REPLICAOF 127.0.0.1 1").unwrap();
    let error = eval::<i64>(&mut app, "ban.lua", "3 attempts banned offences 4 1 60 86400 60").unwrap_err();
    assert_eq!(error.code(), Some("READONLY"));
}

#[test]
fn a_ban_that_cannot_be_takes_neither_an_attempt_nor_an_offence() {
    let (_clock, server, mut connection) = Clock::start(START);
    // The caller has no attempt left: the next one begins a ban.
    throttle(&mut connection, "attempts 4 1 60 5");
    for (numbers, error) in [
        ("4 1 60 86400", "wrong number of arguments"),
        ("4 1 60 86400 60 nan", "ban 2 must be a whole number of seconds, from 1 to 6000000000"),
        ("4 1 60 86400 6000000001", "ban 1 "),
        ("4 1 60 86400 0", "ban 1 "),
        ("4 1 60 86400 1.5", "ban 1 "),
        ("4 1 60 0 60", "the time of forgiveness "),
        ("4 1 60 6000000000 60 600", "the time of forgiveness must be a whole number of seconds, from 1 to 3000000000"),
        ("4 0 60 86400 60", "count must be 1 or more"),
    ] {
        let words = format!("3 attempts banned offences {numbers}");
        refuses(&mut connection, "ban.lua", &words, &format!("ERR {error}"));
    }
    let keys = "ERR the attempts, the ban and the offences need a key each";
    for words in ["attempts attempts offences", "attempts banned banned", "attempts banned attempts"] {
        refuses(&mut connection, "ban.lua", &format!("3 {words} 4 1 60 86400 60"), keys);
    }
    let mut app = user(&server, "docs/recipes.md", "## A ban after too many");
    run::<()>(&mut connection, "ACL SETUSER app -set").unwrap();
    let before = snapshot(&mut connection);
    eval::<Value>(&mut app, "ban.lua", "3 attempts banned offences 4 1 60 86400 60").unwrap_err();
    assert_eq!(snapshot(&mut connection), before);
    // Redis 7.2 writes such a number of a script as 6e+12.
    assert_eq!(attempt(&mut connection, "4 1 60 86400 6000000000"), 6_000_000_000_000);
    assert_eq!(run::<i64>(&mut connection, "TTL banned").unwrap(), 6_000_000_000);
}

#[test]
fn a_ban_grows_with_each_offence_and_an_offence_is_forgiven_after_a_day() {
    let (clock, _server, mut connection) = Clock::start(START);
    let mut now = START;
    let mut offend = |pause: i64| {
        now += pause * SECOND;
        clock.set(now);
        let wait = (0..6).map(|_| attempt(&mut connection, "4 1 1 86400 60 600 3600")).max().unwrap();
        now += (wait + 1) * MILLISECOND;
        wait / 1000
    };
    assert_eq!([0; 5].map(&mut offend), [60, 600, 3600, 3600, 3600]);
    // One ban is forgiven after a day without bans; after three days, all of them are.
    assert_eq!([86_400, 3 * 86_400].map(offend), [3600, 60]);
}
