//! docs/clients/limits.js by itself: the share against exact arithmetic, numbers that are none, refused callers.

use crate::support::Server;
use crate::support::examples::{debian_node, of_test};

#[test]
#[ignore = "slow: a million decisions"]
fn the_share_of_limits_js_passes_nothing_beyond_the_exact_rule() {
    let Some(example) = debian_node(&of_test("clients/share.js")) else { return };
    assert_eq!(example.output(0), "1200000 decisions, many taken, 0 beyond, 2 MB\n");
}

#[test]
#[ignore = "slow: other languages"]
fn limits_js_accepts_no_wrong_number_and_remembers_a_refused_caller() {
    let Some(example) = debian_node(&of_test("clients/limits.js")) else { return };
    let expected = "10 limits and 5 quantities are refused\n403 {}\n413 {}\n\
        1000 calls wait for a reply at once, 200 are decided by the share\n1 call of Redis for 1000 refusals\nbounded\n";
    assert_eq!(example.with("TIMEOUT", "3600").output(Server::start().port), expected);
}
