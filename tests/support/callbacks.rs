//! A server with another module, which runs commands on events: see callbacks.c.

use std::thread::sleep;
use std::time::Duration;

use redis::{Connection, Value};

use super::{Server, command, compiled, error_text, module, run};

/// Starts a server with the other module and redis-cell. Keys expire only when they are accessed.
pub fn start(arguments: &[&str]) -> (Server, Connection) {
    let modules = ["--loadmodule", compiled("callbacks"), "--loadmodule", module()];
    let (server, mut connection) = Server::start_bare(&[&modules, arguments].concat()).connected();
    run::<()>(&mut connection, "DEBUG SET-ACTIVE-EXPIRE 0").unwrap();
    (server, connection)
}

/// Returns the arguments by which a server loads redis-cell behind unwritable.c: any server is a Valkey then that saves
/// keys without a fork, and keys whose names begin with `unwritable` cannot be opened for writing.
pub fn load_with_unwritable_keys() -> [&'static str; 4] {
    ["--loadmodule", compiled("unwritable"), "valkey", module()]
}

/// Commands by which a callback damages the key KEY.
pub const HARM: [&str; 7] = [
    "DEL KEY",
    "CB.DELETE KEY",
    "SET KEY text",
    // Long enough that the server stores the string outside its object.
    "SET KEY xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    "APPEND KEY xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    "PEXPIRE KEY 1",
    "CL.THROTTLE KEY 4 1 60",
];

/// Returns the reply, or the error's text; fails if the server is gone.
pub fn call(server: &Server, connection: &mut Connection, line: &str) -> Result<Value, String> {
    // An error within a reply is returned as a value.
    let reply = connection.send_packed_command(&command(line).get_packed_command());
    match reply.and_then(|()| connection.recv_response()) {
        Ok(Value::ServerError(error)) => Err(error_text(&error.into())),
        Ok(value) => Ok(value),
        Err(error) if error.kind() == redis::ErrorKind::Io => {
            panic!("{line}: {error}\n{}", server.log())
        }
        Err(error) => Err(error_text(&error)),
    }
}

pub fn expire(connection: &mut Connection, key: &str) {
    run::<()>(connection, &format!("SET {key} 1 PX 1")).unwrap();
    sleep(Duration::from_millis(2));
}
