//! Sends commands, written as a user types them, and reads the replies.

use std::collections::BTreeMap;

use redis::{Connection, FromRedisValue, RedisError, RedisResult, Value};

/// Runs a command whose words are separated by spaces.
pub fn run<T: FromRedisValue>(connection: &mut impl redis::ConnectionLike, line: &str) -> RedisResult<T> {
    command(line).query(connection)
}

/// Runs several commands, all of which must succeed.
pub fn run_all(connection: &mut Connection, lines: &[&str]) {
    for line in lines {
        run::<Value>(connection, line).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
}

/// Builds a command from words that are separated by spaces.
pub fn command(line: &str) -> redis::Cmd {
    let mut command = redis::Cmd::new();
    for word in line.split_whitespace() {
        command.arg(word);
    }
    command
}

/// Runs commands in one transaction, and returns their replies.
pub fn transaction(connection: &mut Connection, lines: &[&str]) -> RedisResult<Vec<Value>> {
    let mut transaction = redis::pipe();
    transaction.atomic();
    for line in lines {
        transaction.add_command(command(line));
    }
    transaction.query(connection)
}

/// Calls `CL.THROTTLE` with these arguments, and fails unless the reply is five integers.
pub fn throttle(connection: &mut impl redis::ConnectionLike, arguments: &str) -> [i64; 5] {
    run(connection, &format!("CL.THROTTLE {arguments}")).unwrap()
}

/// Makes a call, and fails unless the reply consists of integers and begins with `expected`.
pub fn assert_reply(connection: &mut impl redis::ConnectionLike, call: &str, expected: &[i64]) {
    let reply = run::<Vec<i64>>(connection, call).unwrap_or_else(|error| panic!("{call}: {error}"));
    assert!(reply.starts_with(expected), "{call}: the reply is {reply:?}, not {expected:?}");
}

/// Returns the text of the error that a command gets, beginning with the error's code.
pub fn error_of(connection: &mut impl redis::ConnectionLike, line: &str) -> String {
    error_text(&run::<Value>(connection, line).expect_err(line))
}

/// Returns an error's text as the server sent it.
pub fn error_text(error: &RedisError) -> String {
    format!("{} {}", error.code().unwrap_or_default(), error.detail().unwrap_or_default())
}

/// All strings in a database. Each key is mapped to its value and to its expiry in ms since the epoch (-1 for never).
/// Non-printable bytes are escaped.
pub type Snapshot = BTreeMap<String, (String, i64)>;

/// Reads every string in the database.
pub fn snapshot(connection: &mut impl redis::ConnectionLike) -> Snapshot {
    let rows: Vec<(Vec<u8>, Vec<u8>, i64)> =
        redis::Script::new(include_str!("snapshot.lua")).invoke(connection).unwrap();
    let printed = |bytes: Vec<u8>| bytes.escape_ascii().to_string();
    rows.into_iter().map(|(key, value, expires_at)| (printed(key), (printed(value), expires_at))).collect()
}

/// Returns the keys at which two maps differ, with both values.
pub fn difference<'a, K: Ord, V: PartialEq>(
    one: &'a BTreeMap<K, V>,
    other: &'a BTreeMap<K, V>,
) -> BTreeMap<&'a K, [Option<&'a V>; 2]> {
    let both = one.keys().chain(other.keys()).map(|key| (key, [one.get(key), other.get(key)]));
    both.filter(|(_, [one, other])| one != other).collect()
}

/// Returns one field of `INFO`.
pub fn info(connection: &mut impl redis::ConnectionLike, field: &str) -> String {
    let info: String = run(connection, "INFO all").unwrap();
    info.lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
        .unwrap_or_else(|| panic!("INFO has no field {field}: {info}"))
        .to_string()
}
