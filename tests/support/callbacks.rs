//! A server with another module, which runs commands on events: see callbacks.c.

use std::path::PathBuf;
use std::sync::OnceLock;

use redis::Connection;

use super::needs::debug_command;
use super::{Server, compiled, module, run};

/// With the module as well. Keys expire only when they are looked at.
pub fn start(arguments: &[&str]) -> (Server, Connection) {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| compiled("callbacks"));
    let mut all = vec!["--loadmodule", library.to_str().unwrap()];
    let module = module();
    all.extend(["--loadmodule", module.to_str().unwrap()]);
    all.extend(debug_command());
    all.extend(arguments);
    let server = Server::start_bare(&all);
    let mut connection = server.connect();
    run::<()>(&mut connection, "DEBUG SET-ACTIVE-EXPIRE 0").unwrap();
    (server, connection)
}
