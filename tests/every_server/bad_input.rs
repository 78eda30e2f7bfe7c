//! A call with too few arguments is refused. replies.txt has each error's text; hostile/calls.rs makes every other
//! mistake, by each command, and looks for changes.

use redis::Value;

use crate::support::{COMMANDS, Server, error_of, run};

#[test]
fn every_command_is_answered_with_all_its_arguments_and_with_one_fewer_refused() {
    let server = Server::start();
    let mut connection = server.connect();
    for command in &COMMANDS {
        for call in command.calls("key") {
            run::<Value>(&mut connection, &call).unwrap();
            let (fewer, _) = call.rsplit_once(' ').unwrap();
            let error = error_of(&mut connection, fewer);
            assert_eq!(error, format!("ERR wrong number of arguments for '{}' command", command.name), "{fewer}");
        }
    }
}
