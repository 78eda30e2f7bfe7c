//! INFO keysizes: Redis 8 counts keys by the length of their values. It counts a limiter as it counts the same value of
//! a SET, however the limiter came to its length.

use redis::{Connection, Value};

use crate::support::callbacks::{expire, start};
use crate::support::needs::needs;
use crate::support::{Server, run};

/// Starts a server with another module. From Redis 8.2 on, it ends at once if a count is wrong.
fn start_counting() -> (Server, Connection) {
    let (server, mut connection) = start(&[]);
    if let Err(error) = run::<Value>(&mut connection, "DEBUG KEYSIZES-HIST-ASSERT 1") {
        assert!(error.to_string().contains("unknown subcommand"), "{error}");
    }
    (server, connection)
}

/// Returns how many strings of which lengths a database holds, by the server's count.
fn counted(connection: &mut Connection, database: u8) -> Option<String> {
    let info: String = run(connection, "INFO keysizes").unwrap();
    let field = format!("db{database}_distrib_strings_sizes:");
    info.lines().find_map(|line| line.strip_prefix(&field)).map(String::from)
}

/// Checks that the key is counted like a copy of it that a SET makes in another database.
fn assert_counted(connection: &mut Connection, when: &str) {
    let text: String = run(connection, "GET key").unwrap();
    for line in ["SELECT 1", &format!("SET key {text}"), "SELECT 0"] {
        run::<()>(connection, line).unwrap();
    }
    let [limiter, copy] = [0, 1].map(|database| counted(connection, database));
    assert_eq!(limiter, copy, "{when}: {} bytes", text.len());
}

fn call(connection: &mut Connection, quotas: usize) {
    let call = format!("CL.THROTTLE key 9 1 3600 1{}", " 9 1 3600".repeat(quotas - 1));
    run::<Value>(connection, &call).unwrap();
}

#[test]
fn a_limiter_is_counted_by_its_length_when_it_gets_or_loses_quotas() {
    needs!("INFO keysizes, Redis 8");
    let (_server, mut connection) = start_counting();
    for first in 1..=8 {
        for second in 1..=8 {
            for quotas in [first, second] {
                call(&mut connection, quotas);
                assert_counted(&mut connection, &format!("{first} quotas, then {second}"));
            }
            run::<()>(&mut connection, "DEL key").unwrap();
            assert_eq!(counted(&mut connection, 0), None, "the key is gone");
        }
    }
}

/// Another module sets the key within the call, which writes its decision over that value.
#[test]
fn a_limiter_in_the_place_of_another_programs_value_is_counted_by_its_own_length() {
    needs!("INFO keysizes, Redis 8");
    let (_server, mut connection) = start_counting();
    for length in [1, 15, 16, 18, 20, 37, 44, 45, 64, 128, 153, 1000] {
        for quotas in 1..=8 {
            run::<()>(&mut connection, "CB.CLEAR").unwrap();
            expire(&mut connection, "key");
            run::<()>(&mut connection, &format!("CB.DO expired SET key {}", "x".repeat(length))).unwrap();
            call(&mut connection, quotas);
            assert_eq!(run::<usize>(&mut connection, "STRLEN key").unwrap(), 19 * quotas);
            assert_counted(&mut connection, &format!("{length} bytes, then {quotas} quotas"));
            run::<()>(&mut connection, "DEL key").unwrap();
            assert_eq!(counted(&mut connection, 0), None, "the key is gone");
        }
    }
}
