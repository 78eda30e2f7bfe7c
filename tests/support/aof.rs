//! Settings for a server's append-only file, and functions that read the file.

use std::fs;
use std::io::Read;
use std::iter::from_fn;
use std::path::{Path, PathBuf};

use redis::{Connection, Parser, Value};

use super::{info, wait_until};

/// Settings that make the server write to the append-only file before each reply, but rewrite the file only on request.
/// With `appendfsync everysec`, the default, a write may wait for a busy disk, and is lost if the process dies then.
pub const AOF: [&str; 6] = ["--appendonly", "yes", "--appendfsync", "no", "--auto-aof-rewrite-percentage", "0"];

/// Returns all commands in the append-only file, from all its parts.
pub fn commands(folder: &Path) -> Vec<Vec<String>> {
    let commands = files(folder).into_iter().flat_map(|path| parse(&fs::read(path).unwrap()));
    let text = |word| String::from_utf8(word).unwrap();
    commands.map(|command| command.into_iter().map(text).collect()).collect()
}

/// Returns the paths of the append-only file's parts. Before Redis 7, there is only one part.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let files = folder.join("appendonlydir");
    let mut paths = vec![folder.join("appendonly.aof")];
    if files.exists() {
        paths = fs::read_dir(files).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "aof"));
    }
    paths
}

/// Returns the commands in one part of the append-only file.
pub fn parse(part: &[u8]) -> Vec<Vec<Vec<u8>>> {
    // A marker after the last command distinguishes the end of the file from a truncated command.
    let mut rest = part.chain(&b"+end\r\n"[..]);
    let mut parser = Parser::new();
    let read = from_fn(|| Some(parser.parse_value(&mut rest).unwrap()));
    let commands = read.take_while(|read| *read != Value::SimpleString("end".to_string()));
    commands.map(|command| redis::from_redis_value(command).unwrap()).collect()
}

/// Waits until the append-only file exists, and no rewrite is running or scheduled.
pub fn wait_for_the_file(connection: &mut Connection) {
    wait_until("the append-only file is written", || {
        info(connection, "aof_rewrite_scheduled") == "0"
            && info(connection, "aof_rewrite_in_progress") == "0"
            && info(connection, "aof_current_size") != "0"
    });
}
