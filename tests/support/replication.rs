//! Creates replicas, and waits for them.

use super::{Server, info, run, wait_until};

/// Settings that keep PINGs out of the replication stream, except for the first PING.
pub const SETTINGS: [&str; 2] = ["--repl-ping-replica-period", "3600"];

/// Makes the server a replica, and waits until it has loaded the primary's data.
pub fn replicate(replica: &Server, primary: &Server) {
    follow(replica, primary);
    let [mut above, mut below] = [primary, replica].map(Server::connect);
    let online = format!("port={},state=online", replica.port);
    wait_until("both servers report that the replica is online", || {
        let replicas: String = run(&mut above, "INFO replication").unwrap();
        replicas.contains(&online) && info(&mut below, "master_link_status") == "up"
    });
}

/// Makes the server a replica, without waiting for the primary's data.
pub fn follow(replica: &Server, primary: &Server) {
    run::<()>(&mut replica.connect(), &format!("REPLICAOF 127.0.0.1 {}", primary.port)).unwrap();
}

/// Waits until the replica has processed everything that the primary has sent.
pub fn catch_up(replica: &Server, primary: &Server) {
    let (mut replica, mut primary) = (replica.connect(), primary.connect());
    wait_until("the replica reaches the primary's offset", || {
        info(&mut replica, "master_repl_offset") == info(&mut primary, "master_repl_offset")
    });
}
