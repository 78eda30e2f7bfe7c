//! docs/recipes/ban.lua: a ban after too many attempts.

use redis::{Connection, Value};

use crate::support::clock::{Clock, MILLISECOND, SECOND};
use crate::support::recipes::{START, eval, read, refuses, user};
use crate::support::{Server, run, snapshot, throttle};

fn app(server: &Server) -> Connection {
    user(server, "docs/recipes.md", "## A ban after too many")
}

/// Makes an attempt with ban.lua and these numbers. Returns the milliseconds to wait, 0 to go on.
fn attempt(connection: &mut Connection, numbers: &str) -> i64 {
    eval(connection, "ban.lua", &format!("3 attempts banned offences {numbers}")).unwrap()
}

#[test]
fn a_ban_has_its_length_whatever_the_numbers_and_however_many_guesses() {
    let (clock, server, mut connection) = Clock::start(START);
    let mut app = app(&server);
    let hour = 3_600_000;
    for (quota, limit) in [("4 1 60", 5), ("4 5 1", 5), ("0 1000 1", 1), ("99 1 1", 100)] {
        run::<()>(&mut connection, "FLUSHALL").unwrap();
        clock.set(START);
        let numbers = format!("{quota} 86400 3600");
        assert_eq!((0..1_000).take_while(|_| attempt(&mut app, &numbers) == 0).count(), limit, "{quota}");
        let waits = [(0, hour), (1_000, hour - 1_000), (hour - 1, 1), (hour, 1), (hour + 1, 0)];
        for (milliseconds, wait) in waits {
            clock.set(START + milliseconds * MILLISECOND);
            assert_eq!(attempt(&mut app, &numbers), wait, "{quota}, after {milliseconds} ms");
        }
    }
    // One attempt comes back a day, so that a wait of the ban's hour would only lead into the next ban.
    run::<()>(&mut connection, "FLUSHALL").unwrap();
    let a_day = "0 1 86400 86400 3600";
    assert_eq!([(); 2].map(|()| attempt(&mut app, a_day)), [0, 86_400_000]);
    clock.set(START + hour * MILLISECOND + 86_401 * SECOND);
    assert_eq!(attempt(&mut app, a_day), 0);
    // All five attempts are there after the first ban of ban.py.
    run::<()>(&mut connection, "FLUSHALL").unwrap();
    for moment in [START, START + 300 * SECOND + MILLISECOND] {
        clock.set(moment);
        let tried = (0..6).take_while(|_| attempt(&mut app, "4 1 60 86400 300 1800 3600") == 0);
        assert_eq!(tried.count(), 5);
    }
    // A client knows by the error's code that a failover has made its server a replica.
    run::<()>(&mut connection, "FLUSHALL").unwrap();
    run::<()>(&mut connection, "REPLICAOF 127.0.0.1 1").unwrap();
    let error = eval::<i64>(&mut app, "ban.lua", "3 attempts banned offences 4 1 60 86400 60").unwrap_err();
    assert_eq!(error.code(), Some("READONLY"));
}

/// A right password must not give back more: a guesser with an account would get all attempts back between two guesses.
#[test]
fn a_right_password_gives_back_its_own_attempt_and_no_other() {
    let (_clock, server, _) = Clock::start(START);
    let mut connection = app(&server);
    let succeeded = |connection: &mut Connection| throttle(connection, "attempts 4 1 60 -1");
    let numbers = "4 1 60 86400 3600";
    // ban.py calls EVALSHA and SCRIPT.
    let script = redis::Script::new(&read("ban.lua"));
    let words = ["4", "1", "60", "86400", "3600"];
    let wait = script.key(&["attempts", "banned", "offences"]).arg(&words).invoke(&mut connection);
    assert_eq!(wait, Ok(0));
    succeeded(&mut connection);
    for _ in 0..100 {
        assert_eq!(attempt(&mut connection, numbers), 0);
        succeeded(&mut connection);
    }
    let mut guesses = 0;
    while attempt(&mut connection, numbers) == 0 {
        guesses += 1;
        if attempt(&mut connection, numbers) == 0 {
            succeeded(&mut connection);
        }
    }
    assert_eq!(guesses, 5);
    // This attempt was being checked when the ban began.
    succeeded(&mut connection);
    assert_eq!(attempt(&mut connection, numbers), 3_600_000);
}

#[test]
fn a_ban_that_cannot_be_takes_neither_an_attempt_nor_an_offence() {
    let (_clock, server, mut connection) = Clock::start(START);
    // The caller has no attempt left: the next one begins a ban.
    throttle(&mut connection, "attempts 4 1 60 5");
    for (numbers, error) in [
        ("4 1 60 86400", "wrong number of arguments"),
        ("4 1 60 86400 abc", "ban 1 must be a whole number of seconds, from 1 to 6000000000"),
        ("4 1 60 86400 60 nan", "ban 2 "),
        ("4 1 60 86400 60 9223372036854775807 60", "ban 2 "),
        ("4 1 60 86400 0", "ban 1 "),
        ("4 1 60 86400 -60", "ban 1 "),
        ("4 1 60 86400 1.5", "ban 1 "),
        ("4 1 60 86400 0x10", "ban 1 "),
        ("4 1 60 86400 ␣60", "ban 1 "),
        ("4 1 60 1e5 60", "the time of forgiveness must be a whole number of seconds, from 1 to 6000000000"),
        ("4 1 60 0 60", "the time of forgiveness "),
        ("4 1 60 6000000000 60 600", "the time of forgiveness must be a whole number of seconds, from 1 to 3000000000"),
        ("4 0 60 86400 60", "count must be 1 or more"),
        ("4.5 1 60 86400 60", "max_burst is not an integer"),
    ] {
        let words = format!("3 attempts banned offences {numbers}");
        refuses(&mut connection, "ban.lua", &words, &format!("ERR {error}"));
    }
    let keys = "ERR the attempts, the ban and the offences need a key each";
    for words in ["attempts attempts offences", "attempts banned banned", "attempts banned attempts"] {
        refuses(&mut connection, "ban.lua", &format!("3 {words} 4 1 60 86400 60"), keys);
    }
    let mut app = app(&server);
    run::<()>(&mut connection, "ACL SETUSER app -set").unwrap();
    let before = snapshot(&mut connection);
    for numbers in ["4 1 60 86400 60", "4 1 60 86400 6000000000"] {
        eval::<Value>(&mut app, "ban.lua", &format!("3 attempts banned offences {numbers}")).unwrap_err();
    }
    assert_eq!(snapshot(&mut connection), before);
    run::<()>(&mut connection, "ACL SETUSER app +set").unwrap();
    // Redis 7.2 writes such a number of a script as 6e+12.
    assert_eq!(attempt(&mut app, "4 1 60 86400 6000000000"), 6_000_000_000_000);
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
