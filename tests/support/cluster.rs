//! Nodes of a cluster, and a cluster of one node.

use std::ops::Range;

use redis::Connection;

use super::{Server, run, wait_until};

pub const SLOTS: usize = 16_384;

/// Starts a node that has all slots.
pub fn start_node() -> Server {
    let node = Server::start_with(&["--cluster-enabled", "yes"]);
    add_slots(&mut node.connect(), 0..SLOTS);
    wait_until("the cluster is up", || is_ok(&node));
    node
}

/// Assigns the slots to the node; no other node may own them.
pub fn add_slots(node: &mut Connection, slots: Range<usize>) {
    redis::cmd("CLUSTER").arg("ADDSLOTS").arg(slots.collect::<Vec<_>>()).exec(node).unwrap();
}

pub fn is_ok(node: &Server) -> bool {
    let info: String = run(&mut node.connect(), "CLUSTER INFO").unwrap();
    info.contains("cluster_state:ok")
}
