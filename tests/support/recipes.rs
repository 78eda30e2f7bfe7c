//! The recipes of docs/recipes and docs/budgets: their files, and programs that use them.

use std::fs;

use redis::{Connection, FromRedisValue, RedisResult, Value};

use super::pages::{code, text_of};
use super::programs::path;
use super::{Server, error_text, run, snapshot};

/// A moment on a whole microsecond: scripts read the time in microseconds.
pub const START: i64 = 1_790_000_000_123_456_000;

/// The five integers of one limiter in a reply: limited, limit, remaining, retry after, reset after.
pub type Row = [i64; 5];

/// Returns the text of a recipe.
pub fn read(file: &str) -> String {
    fs::read_to_string(path(&format!("recipes/{file}"))).unwrap()
}

/// Calls a script as redis-cli does: the words are the number of keys, the keys and the arguments.
pub fn eval<T: FromRedisValue>(connection: &mut Connection, file: &str, words: &str) -> RedisResult<T> {
    redis::cmd("EVAL").arg(read(file)).arg(words.split(' ').collect::<Vec<_>>()).query(connection)
}

/// Fails unless the script's error has this text, and nothing has changed. Redis 6.2 puts the script's line before it.
pub fn refuses(connection: &mut Connection, file: &str, words: &str, error: &str) {
    let before = snapshot(connection);
    let text = error_text(&eval::<Value>(connection, file, words).expect_err(words));
    assert!(text.contains(error), "{file} {words}: {text}");
    assert_eq!(snapshot(connection), before, "{file} {words}");
}

pub fn load_function(connection: &mut Connection, library: &str) -> RedisResult<String> {
    redis::cmd("FUNCTION").arg("LOAD").arg("REPLACE").arg(library).query(connection)
}

/// Runs a command, and returns all integers of its reply, in their order.
pub fn ask(connection: &mut Connection, line: &str) -> RedisResult<Vec<i64>> {
    fn integers(reply: Value) -> Vec<i64> {
        match reply {
            Value::Array(parts) => parts.into_iter().flat_map(integers).collect(),
            integer => vec![redis::from_redis_value(integer).unwrap()],
        }
    }
    run(connection, line).map(integers)
}

/// Connects as a user who may call what a section of a page names, and nothing else.
pub fn user(server: &Server, page: &str, heading: &str) -> Connection {
    let page = text_of(page);
    let (_, section) = page.split_once(heading).unwrap();
    let (_, sentence) = section.split_once("A user needs the right").unwrap();
    let rights = code(sentence.split_inclusive("`.").next().unwrap());
    let rights: String = rights.map(|name| format!(" +{}", name.to_lowercase())).collect();
    let mut connection = server.connect();
    run::<()>(&mut connection, &format!("ACL SETUSER app on nopass ~*{rights}")).unwrap();
    run::<()>(&mut connection, "AUTH app x").unwrap();
    connection
}
