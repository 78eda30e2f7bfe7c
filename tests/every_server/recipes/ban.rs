//! docs/recipes/ban.lua: a ban after too many attempts.

use redis::Connection;

use crate::support::clock::{Clock, MILLISECOND, SECOND};
use crate::support::recipes::{START, read};
use crate::support::{Server, run, throttle};

/// Makes an attempt with ban.lua, with these numbers for attempts and one ban of an hour. Returns the milliseconds to
/// wait, 0 to go on.
fn attempt(connection: &mut Connection, who: &str, numbers: &str) -> i64 {
    attempt_by(connection, who, &format!("{numbers} 86400 3600"))
}

fn attempt_by(connection: &mut Connection, who: &str, numbers: &str) -> i64 {
    let keys = ["attempts", "banned", "offences"].map(|name| format!("{name}:{{{who}}}"));
    let numbers: Vec<_> = numbers.split(' ').collect();
    redis::cmd("EVAL").arg(read("ban.lua")).arg(3).arg(&keys).arg(numbers).query(connection).unwrap()
}

/// A client knows by the error's code that a failover has made its server a replica.
#[test]
fn a_replica_answers_an_attempt_with_its_own_error() {
    let server = Server::start();
    let mut connection = server.connect();
    run::<()>(&mut connection, "REPLICAOF 127.0.0.1 1").unwrap();
    let call = redis::cmd("EVAL").arg(read("ban.lua")).arg(&["3", "a", "b", "c", "4", "1", "60", "86400", "60"]).take();
    assert_eq!(call.query::<i64>(&mut connection).unwrap_err().code(), Some("READONLY"));
}

#[test]
fn a_ban_has_its_length_whatever_the_numbers_and_however_many_guesses() {
    let (clock, server) = Clock::start(START);
    let mut connection = server.connect();
    let hour = 3_600_000;
    for (numbers, limit) in [("4 1 60", 5), ("4 5 1", 5), ("4 7 60", 5), ("4 2 5", 5), ("0 1000 1", 1), ("99 1 1", 100)]
    {
        run::<()>(&mut connection, "FLUSHALL").unwrap();
        let mut now = START;
        clock.set(now);
        let tried = (0..1_000).take_while(|_| attempt(&mut connection, "alice", numbers) == 0).count();
        assert_eq!(tried, limit, "{numbers}");
        for _ in 0..300 {
            assert_eq!(attempt(&mut connection, "alice", numbers), hour - (now - START) / MILLISECOND, "{numbers}");
            now += SECOND;
            clock.set(now);
        }
        for (milliseconds, wait) in [(hour - 1, 1), (hour, 1), (hour + 1, 0)] {
            clock.set(START + milliseconds * MILLISECOND);
            assert_eq!(attempt(&mut connection, "alice", numbers), wait, "{numbers}, after {milliseconds} ms");
        }
    }
    // One attempt comes back a day, so that a wait of the ban's hour would only lead into the next ban.
    clock.set(START);
    assert_eq!(attempt(&mut connection, "bob", "0 1 86400"), 0);
    assert_eq!(attempt(&mut connection, "bob", "0 1 86400"), 86_400_000);
    clock.set(START + 86_401 * SECOND);
    assert_eq!(attempt(&mut connection, "bob", "0 1 86400"), 0);
    // A ban of three years: Redis 7.2 writes this number of a script as 1e+08.
    assert_eq!(attempt_by(&mut connection, "carol", "0 1 60 86400 100000000"), 0);
    assert_eq!(attempt_by(&mut connection, "carol", "0 1 60 86400 100000000"), 100_000_000_000);
    assert_eq!(run::<i64>(&mut connection, "TTL banned:{carol}").unwrap(), 100_000_000);
}

/// The numbers are those of ban.py.
#[test]
fn after_the_first_ban_all_five_attempts_are_there() {
    let (clock, server) = Clock::start(START);
    let mut connection = server.connect();
    let numbers = "4 1 60 86400 300 1800 3600";
    let mut tried = || (0..6).take_while(|_| attempt_by(&mut connection, "alice", numbers) == 0).count();
    assert_eq!(tried(), 5);
    clock.set(START + 300 * SECOND + MILLISECOND);
    assert_eq!(tried(), 5);
}

/// A right password must not give back more: a guesser with an account would get all attempts back between two guesses.
#[test]
fn a_right_password_gives_back_its_own_attempt_and_no_other() {
    let (_clock, server) = Clock::start(START);
    let mut connection = server.connect();
    let succeeded = |connection: &mut Connection| throttle(connection, "attempts:{alice} 4 1 60 -1");
    for _ in 0..100 {
        assert_eq!(attempt(&mut connection, "alice", "4 1 60"), 0);
        succeeded(&mut connection);
    }
    let mut guesses = 0;
    while attempt(&mut connection, "alice", "4 1 60") == 0 {
        guesses += 1;
        if attempt(&mut connection, "alice", "4 1 60") == 0 {
            succeeded(&mut connection);
        }
    }
    assert_eq!(guesses, 5);
    // This attempt was being checked when the ban began.
    succeeded(&mut connection);
    assert_eq!(attempt(&mut connection, "alice", "4 1 60"), 3_600_000);
}

#[test]
fn a_ban_grows_with_each_offence_and_an_offence_is_forgiven_after_a_day() {
    let (clock, server) = Clock::start(START);
    let mut connection = server.connect();
    let mut now = START;
    let mut offend = |pause: i64| {
        now += pause * SECOND;
        clock.set(now);
        let wait = (0..6).map(|_| attempt_by(&mut connection, "alice", "4 1 1 86400 60 600 3600")).max().unwrap();
        now += (wait + 1) * MILLISECOND;
        wait / 1000
    };
    assert_eq!([0; 5].map(&mut offend), [60, 600, 3600, 3600, 3600]);
    // One ban is forgiven after a day without bans; after three days, all of them are.
    assert_eq!([86_400, 3 * 86_400].map(offend), [3600, 60]);
}
