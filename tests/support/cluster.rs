//! Creates a cluster of two nodes.

use super::{Server, run, wait_until};

/// Starts a cluster with these settings. Its first node owns all slots, and its second owns none.
pub fn two_nodes(settings: &[&str]) -> [Server; 2] {
    // Set a long timeout: a node that gets no CPU time for a while, on a busy machine, must not count as failed.
    let cluster = ["--cluster-enabled", "yes", "--cluster-node-timeout", "120000"];
    let nodes = [(); 2].map(|()| Server::start_with(&[&cluster, settings].concat()));
    meet(&nodes);
    nodes
}

/// Joins two nodes into a cluster, in which the first owns all slots.
pub fn meet([owner, other]: &[Server; 2]) {
    let mut connection = owner.connect();
    let slots: Vec<_> = (0..16_384).collect();
    redis::cmd("CLUSTER").arg("ADDSLOTS").arg(slots).exec(&mut connection).unwrap();
    run::<()>(&mut connection, &format!("CLUSTER MEET 127.0.0.1 {}", other.port)).unwrap();
    wait_until("the nodes form a cluster", || {
        [owner, other].iter().all(|node| {
            let mut node = node.connect();
            let [info, nodes]: [String; 2] =
                ["INFO", "NODES"].map(|part| run(&mut node, &format!("CLUSTER {part}")).unwrap());
            let is_known = nodes.matches(" connected").count() == 2 && !nodes.contains("handshake");
            info.contains("cluster_state:ok") && is_known
        })
    });
}
