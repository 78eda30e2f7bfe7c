//! A server that follows another one.

use super::{Server, info, run, wait_until};

/// Makes it a replica, and waits until it has loaded the primary's data.
pub fn replicate(replica: &Server, primary: &Server) {
    let mut connection = replica.connect();
    run::<()>(&mut connection, &format!("REPLICAOF 127.0.0.1 {}", primary.port)).unwrap();
    let online = format!("port={},state=online", replica.port);
    wait_until("synchronisation, as both see it", || {
        let replicas: String = run(&mut primary.connect(), "INFO replication").unwrap();
        replicas.contains(&online) && info(&mut connection, "master_link_status") == "up"
    });
}

/// Waits until the replica has run all that the primary has sent.
pub fn catch_up(replica: &Server, primary: &Server) {
    let (mut replica, mut primary) = (replica.connect(), primary.connect());
    wait_until("equal offsets", || {
        info(&mut replica, "master_repl_offset") == info(&mut primary, "master_repl_offset")
    });
}
