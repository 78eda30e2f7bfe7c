//! The programs in docs/recipes that behave alike on each server.

use crate::support::clock::Clock;
use crate::support::recipes::{START, prints_what_the_page_shows, python};

mod ban;
mod calendar_quota;
mod fake;
mod gateway;
mod module_or_script;
mod names;
mod reservation;
mod waiting;

#[test]
#[ignore = "slow: Python"]
fn a_greedy_tenant_has_its_share_and_background_work_leaves_half_of_the_pool() {
    let (_clock, server) = Clock::start(START);
    prints_what_the_page_shows("fairness.py", &server);
}

#[test]
#[ignore = "slow: Python"]
fn a_shadow_refuses_nothing_and_the_day_on_which_it_counts_begins_with_all_tokens() {
    let (_clock, mut server) = Clock::start(START);
    prints_what_the_page_shows("shadow.py", &server);
    // The shadow allows and counts a call without a server, and the enforced limit is an error.
    let mut later = python("shadow.py", &server);
    server.kill();
    let output = later.output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "shadow: 20 of 20 pass, {'error': 20}\n");
    assert!(!output.status.success());
}
