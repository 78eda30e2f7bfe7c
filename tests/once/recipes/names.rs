//! The names of users in the keys of docs/recipes and docs/budgets.

use crate::support::cluster::{SLOTS, add_slots, is_ok};
use crate::support::needs::needs;
use crate::support::programs;
use crate::support::recipes::{load_function, program, read};
use crate::support::{Server, wait_until};

/// A user may choose any name. A hash tag that is empty is none, and a call on the keys would get CROSSSLOT.
#[test]
#[ignore = "slow: a cluster"]
fn names_with_braces_keep_their_keys_on_one_node_and_apart_from_those_of_other_names() {
    needs!("functions, Redis 7");
    let node = Server::start_with(&["--cluster-enabled", "yes"]);
    add_slots(&mut node.connect(), 0..SLOTS);
    wait_until("the cluster is up", || is_ok(&node));
    for library in ["../budgets/reservation.lua", "calendar_quota.lua"] {
        load_function(&mut node.connect(), &read(library)).unwrap();
    }
    programs::output(&mut program("names.py", &node));
}
