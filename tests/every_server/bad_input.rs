//! Every row of the table of errors: the call gets the error's text, and changes nothing at all.

use redis::{Connection, Value};

use crate::support::aof::AOF;
use crate::support::hostile::NOT_INTEGERS;
use crate::support::{self, COMMANDS};
use crate::support::{Server, info, run, throttle};

/// The state that an error must leave as it was.
#[derive(Debug, PartialEq)]
struct Snapshot {
    key: Option<Vec<u8>>,
    expires: i64,
    changes: String,
    /// The size of the append-only file, which gets the same commands as replicas.
    propagated: String,
}

impl Snapshot {
    fn take(connection: &mut Connection) -> Self {
        // Keep only whether the key expires: PTTL itself moves with time.
        let ttl: i64 = run(connection, "PTTL key").unwrap();
        Self {
            key: run(connection, "DUMP key").unwrap(),
            expires: ttl.min(0),
            changes: info(connection, "rdb_changes_since_last_save"),
            propagated: info(connection, "aof_current_size"),
        }
    }
}

/// Returns the error's text, code first; fails if the call changed anything.
fn error(connection: &mut Connection, arguments: &[&[u8]]) -> String {
    let before = Snapshot::take(connection);
    let mut call = redis::cmd("CL.THROTTLE");
    arguments.iter().for_each(|&argument| {
        call.arg(argument);
    });
    let error = call.query::<Value>(connection).expect_err("an error");
    assert_eq!(Snapshot::take(connection), before, "{error}");
    format!("{} {}", error.code().unwrap(), error.detail().unwrap())
}

/// Does the same as `error`, for arguments without spaces.
fn error_of(connection: &mut Connection, arguments: &str) -> String {
    let words: Vec<&[u8]> = arguments.split_whitespace().map(str::as_bytes).collect();
    error(connection, &words)
}

#[test]
fn a_wrong_number_of_arguments_is_the_servers_own_arity_error() {
    let server = Server::start_with(&AOF);
    let mut connection = server.connect();
    let arity = "ERR wrong number of arguments for 'cl.throttle' command";
    for arguments in ["", "key", "key 1", "key 1 1", "key 1 1 1 1 1", "key 1 1 1 1 1 1"] {
        let text = error_of(&mut connection, arguments);
        // Redis 6.2 names a module's command in the caller's own spelling.
        let text = text.replace("CL.THROTTLE", "cl.throttle");
        assert_eq!(text, arity, "{arguments}");
    }
}

#[test]
fn an_argument_that_is_not_a_64_bit_integer_is_named() {
    let server = Server::start_with(&AOF);
    let mut connection = server.connect();
    throttle(&mut connection, "key 15 1 3600");
    for argument in NOT_INTEGERS {
        for (position, name) in [(1, "max_burst"), (2, "count"), (3, "period"), (4, "quantity")] {
            let mut arguments: [&[u8]; 5] = [b"key", b"15", b"30", b"60", b"1"];
            arguments[position] = argument;
            let expected = format!("ERR {name} is not an integer or out of range");
            assert_eq!(error(&mut connection, &arguments), expected, "{argument:?}");
        }
    }
}

#[test]
fn an_argument_below_its_least_value_is_named() {
    let server = Server::start_with(&AOF);
    let mut connection = server.connect();
    for (arguments, expected) in [
        ("key -2 30 60", "ERR max_burst must be -1 or more"),
        ("key -9223372036854775808 30 60", "ERR max_burst must be -1 or more"),
        ("key 15 0 60", "ERR count must be 1 or more"),
        ("key 15 -1 60", "ERR count must be 1 or more"),
        ("key 15 30 0", "ERR period must be 1 or more"),
        ("key 15 30 -1", "ERR period must be 1 or more"),
    ] {
        assert_eq!(error_of(&mut connection, arguments), expected, "{arguments}");
    }
}

#[test]
fn more_than_one_token_per_nanosecond_is_refused() {
    let server = Server::start_with(&AOF);
    let mut connection = server.connect();
    for arguments in ["key 15 1000000001 1", "key 0 9223372036854775807 1", "key 15 60000000001 60"] {
        let text = error_of(&mut connection, arguments);
        assert!(text.starts_with("ERR ") && text.contains("count") && text.contains("period"), "{text}");
    }
    assert_eq!(throttle(&mut connection, "key 15 1000000000 1")[..2], [0, 16]);
}

#[test]
fn a_limiter_that_outlasts_the_clock_is_refused() {
    let server = Server::start_with(&AOF);
    let mut connection = server.connect();
    for arguments in [
        "key 9223372036854775807 30 60",
        "key 9223372036854775806 1 1",
        "key 9223372036854775806 1000000000 1",
        "key 15 1 9223372036854775807",
        "key 0 1 7500000000",
        "key 9223372036854775806 1 9223372036854775807",
    ] {
        let text = error_of(&mut connection, arguments);
        assert!(text.starts_with("ERR "), "{text}");
        assert!(["max_burst", "count", "period"].iter().all(|name| text.contains(name)), "{text}");
    }
    // 200 years from 2026 is the year 2226, before the clock's last day.
    assert_eq!(throttle(&mut connection, "key 0 1 6311520000"), [0, 1, 0, -1, 6_311_520_000]);
}

#[test]
fn arguments_are_checked_before_the_key_is_opened() {
    let server = Server::start_with(&AOF);
    let mut connection = server.connect();
    run::<()>(&mut connection, "RPUSH key 1").unwrap();
    assert_eq!(error_of(&mut connection, "key 15 0 60"), "ERR count must be 1 or more");
    assert_eq!(error_of(&mut connection, "key 15 30 60 x"), "ERR quantity is not an integer or out of range");
}

#[test]
fn a_key_of_another_type_is_the_servers_own_wrongtype_error() {
    let server = Server::start_with(&AOF);
    let mut connection = server.connect();
    for make in ["RPUSH key a", "HSET key a b", "SADD key a b", "ZADD key 1 a", "XADD key * a b"] {
        run::<()>(&mut connection, "DEL key").unwrap();
        run::<Value>(&mut connection, make).unwrap();
        let own = run::<Value>(&mut connection, "INCR key").unwrap_err();
        let own = format!("{} {}", own.code().unwrap(), own.detail().unwrap());
        assert!(own.starts_with("WRONGTYPE "), "{own}");
        for quantity in ["0", "1", "100"] {
            assert_eq!(error_of(&mut connection, &format!("key 15 30 60 {quantity}")), own, "{make}");
        }
    }
}

#[test]
fn a_string_that_is_no_tat_is_refused_and_left_alone() {
    let server = Server::start_with(&AOF);
    let mut connection = server.connect();
    let not_a_tat: [&[u8]; 19] = [
        // The value of a counter, then 18 digits, then 20.
        b"5",
        b"179000000000000000",
        b"00000000000000000007",
        b"",
        b"hello",
        b"-5",
        b"-0",
        b"+5",
        b"1.5",
        b"1e9",
        b" 1",
        b"1 ",
        b"0x10",
        b"\0",
        b"\xff",
        b"12345678901234567890",
        b"9223372036854775808",
        b"99999999999999999999999",
        &[b'1'; 100_000],
    ];
    for value in not_a_tat {
        redis::cmd("SET").arg("key").arg(value).exec(&mut connection).unwrap();
        let text = error_of(&mut connection, "key 15 30 60");
        assert_eq!(text, "ERR the key holds no rate limiter state", "{value:?}");
        run::<()>(&mut connection, "EXPIRE key 100").unwrap();
        for quantity in ["0", "-1"] {
            assert_eq!(error_of(&mut connection, &format!("key 15 30 60 {quantity}")), text, "{value:?}");
        }
    }
}

#[test]
fn every_command_refuses_what_cl_throttle_refuses() {
    let server = Server::start_with(&AOF);
    let mut connection = server.connect();
    run::<()>(&mut connection, "SET text hello").unwrap();
    run::<()>(&mut connection, "RPUSH list a").unwrap();
    for arguments in [
        "",
        "key 1 1",
        "key x 1 1 1",
        "key 1 x 1 1",
        "key 1 1 1.5 1",
        "key 1 1 1 x",
        "key -2 1 1 1",
        "key 1 0 1 1",
        "key 1 1 0 1",
        "key 1 9223372036854775807 1 1",
        "key 9223372036854775807 1 1 1",
        "key 1 1 9223372036854775807 1",
        "text 1 1 1 1",
        "list 1 1 1 1",
    ] {
        let expected = support::error_of(&mut connection, &format!("cl.throttle {arguments}"));
        for name in COMMANDS.iter().filter(|command| command.takes_a_quota()).map(|command| command.name) {
            let error = support::error_of(&mut connection, &format!("{name} {arguments}"));
            let error = error.trim_end_matches(" (group 1)").replace(name, "cl.throttle");
            assert_eq!(error, expected, "{name} {arguments}");
        }
    }
    // A negative quantity gives tokens back, except to the commands whose quantity must be 0 or more.
    for name in COMMANDS.iter().filter(|command| command.takes_a_quota()).map(|command| command.name) {
        let reply = run::<Value>(&mut connection, &format!("{name} key 1 1 1 -1"));
        let never = ["cl.take", "cl.ptake", "cl.look", "cl.plook"].contains(&name);
        let error = reply.err().map(|error| error.detail().unwrap().to_string());
        assert_eq!(error.as_deref(), never.then_some("quantity must be 0 or more"), "{name}");
    }
    assert!(!run::<bool>(&mut connection, "EXISTS key").unwrap());
}

#[test]
fn every_command_is_answered_with_all_its_arguments_and_with_one_fewer_refused() {
    let server = Server::start_with(&AOF);
    let mut connection = server.connect();
    for command in &COMMANDS {
        for call in command.calls("key") {
            run::<Value>(&mut connection, &call).unwrap();
            let (fewer, _) = call.rsplit_once(' ').unwrap();
            let error = support::error_of(&mut connection, fewer);
            assert_eq!(error, format!("ERR wrong number of arguments for '{}' command", command.name), "{fewer}");
        }
    }
}
