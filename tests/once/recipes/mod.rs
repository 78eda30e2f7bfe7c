//! The programs in docs/recipes that behave alike on each server.

use crate::support::clock::Clock;
use crate::support::cluster::start_node;
use crate::support::needs::{FUNCTIONS, needs};
use crate::support::programs::{output, python};
use crate::support::recipes::{START, load_function, prints_what_the_page_shows, read};

mod ban;
mod calendar_quota;
mod fake;
mod gateway;
mod module_or_script;
mod reservation;
mod waiting;

#[test]
#[ignore = "slow: Python"]
fn a_greedy_tenant_has_its_share_and_background_work_leaves_half_of_the_pool() {
    let (_clock, server, _) = Clock::start(START);
    prints_what_the_page_shows("fairness.py", &server);
}

#[test]
#[ignore = "slow: Python"]
fn a_shadow_refuses_nothing_and_the_day_on_which_it_counts_begins_with_all_tokens() {
    let (_clock, mut server, _) = Clock::start(START);
    prints_what_the_page_shows("shadow.py", &server);
    // The shadow allows and counts a call without a server, and the enforced limit is an error.
    let mut later = python("recipes/shadow.py", &server);
    server.kill();
    let output = later.output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "shadow: 20 of 20 pass, {'error': 20}\n");
    assert!(!output.status.success());
}

/// A user may choose any name. A hash tag that is empty is none, and a call on the keys would get CROSSSLOT.
#[test]
#[ignore = "slow: a cluster"]
fn names_with_braces_keep_their_keys_on_one_node_and_apart_from_those_of_other_names() {
    needs!(FUNCTIONS);
    let node = start_node();
    for library in ["../budgets/reservation.lua", "calendar_quota.lua"] {
        load_function(&mut node.connect(), &read(library)).unwrap();
    }
    output(&mut python("../tests/once/recipes/names.py", &node));
}
