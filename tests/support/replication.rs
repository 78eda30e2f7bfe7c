//! A server that follows another one.

use redis::Connection;

use super::{Server, info, run, wait_until};

/// Settings that keep PING out of the replication stream, but for a first one.
pub const SETTINGS: [&str; 2] = ["--repl-ping-replica-period", "3600"];

/// Makes the server a replica, and waits until it has loaded the primary's data.
pub fn replicate(replica: &Server, primary: &Server) {
    follow(replica, primary);
    wait_for_replica(replica, primary);
}

/// Tells the server to become a replica.
pub fn follow(replica: &Server, primary: &Server) {
    run::<()>(&mut replica.connect(), &format!("REPLICAOF 127.0.0.1 {}", primary.port)).unwrap();
}

/// Waits until the replica has loaded the primary's data.
pub fn wait_for_replica(replica: &Server, primary: &Server) {
    let [mut above, mut below] = [primary, replica].map(Server::connect);
    let online = format!("port={},state=online", replica.port);
    wait_until("synchronisation, as both see it", || {
        let replicas: String = run(&mut above, "INFO replication").unwrap();
        replicas.contains(&online) && info(&mut below, "master_link_status") == "up"
    });
}

/// Waits until the replica has run all that the primary has sent.
pub fn catch_up(replica: &Server, primary: &Server) {
    let (mut replica, mut primary) = (replica.connect(), primary.connect());
    wait_until("equal offsets", || {
        info(&mut replica, "master_repl_offset") == info(&mut primary, "master_repl_offset")
    });
}

/// MONITOR on a server: the commands that it executes from now on. On a replica, these are the commands that the
/// primary sends.
pub struct Monitor(Connection);

impl Monitor {
    pub fn start(server: &Server) -> Self {
        let mut connection = server.connect();
        run::<()>(&mut connection, "MONITOR").unwrap();
        Self(connection)
    }

    /// Returns every command up to the first one that contains this word, except PING: a primary sends one whenever its
    /// own timer says so.
    pub fn commands_until(mut self, last: &str) -> Vec<String> {
        let mut commands = Vec::new();
        loop {
            // 1790000000.123456 [0 127.0.0.1:6379] "DEL" "key"
            let line: String = redis::from_redis_value(self.0.recv_response().unwrap()).unwrap();
            let command = line.split_once("] ").unwrap().1.replace('"', "");
            if command.contains(last) {
                return commands;
            }
            if !command.eq_ignore_ascii_case("PING") {
                commands.push(command);
            }
        }
    }
}
