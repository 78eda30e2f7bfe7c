//! docs/recipes/fairness.py: tenants that share a pool.

use crate::support::clock::Clock;
use crate::support::recipes::{START, prints};

#[test]
#[ignore = "slow: Python"]
fn a_greedy_tenant_has_its_share_and_background_work_leaves_half_of_the_pool() {
    let (_clock, server) = Clock::start(START);
    let expected = "\
        greedy has 40 of 100, refused by ['tenant']\n\
        modest in the background: 10 of 100, refused by ['pool']\n\
        modest has 30 of 100, refused by ['tenant']\n\
        third has 20 of 100, refused by ['pool']\n";
    prints("fairness.py", &server, expected);
}
