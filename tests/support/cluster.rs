//! Nodes of a cluster.

use std::ops::Range;

use redis::Connection;

use super::{Server, run};

pub const SLOTS: usize = 16_384;

/// Assigns the slots to the node; no other node may own them.
pub fn add_slots(node: &mut Connection, slots: Range<usize>) {
    redis::cmd("CLUSTER").arg("ADDSLOTS").arg(slots.collect::<Vec<_>>()).exec(node).unwrap();
}

pub fn is_ok(node: &Server) -> bool {
    let info: String = run(&mut node.connect(), "CLUSTER INFO").unwrap();
    info.contains("cluster_state:ok")
}
