//! docs/clients/limits.js: the share against exact arithmetic, wrong numbers, refused callers, replaced clients.

use crate::support::Server;
use crate::support::examples::{debian_node, npm_node, of_test};

#[test]
#[ignore = "slow: a million decisions"]
fn the_share_of_limits_js_passes_nothing_beyond_the_exact_rule() {
    let Some(example) = debian_node(&of_test("clients/share.js")) else { return };
    assert_eq!(example.output(0), "1200000 decisions, many taken, 0 beyond, 2 MB\n");
}

#[test]
#[ignore = "slow: other languages"]
fn limits_js_accepts_no_wrong_number_and_remembers_a_refused_caller() {
    let expected = "10 limits and 5 quantities are refused\n403 {}\n413 {}\n\
        1000 calls wait for a reply at once, 200 are decided by the share\n1 call of Redis for 1000 refusals\nbounded\n\
        [ 503, { 'Retry-After': 1 }, 'share' ] [ 200, {}, 'share' ]\n2 clients\n";
    let [debian, npm] = [debian_node, npm_node].map(|node| node(&of_test("clients/limits.js")));
    let ioredis = npm.as_ref().map(|npm| npm.with("CLIENT", "ioredis.js"));
    for example in [debian, npm, ioredis].into_iter().flatten() {
        let printed = example.with("TIMEOUT", "3600").output(Server::start().port);
        assert_eq!(printed, expected, "{example:?}");
    }
}
