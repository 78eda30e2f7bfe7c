//! limits.py, limits.js and limits.lua by themselves: the share against exact arithmetic, wrong numbers, refused
//! callers, and replaced clients.

use crate::support::Server;
use crate::support::examples::Libraries::{Npm, Python};
use crate::support::examples::{DEBIAN_NODE, Http, examples};

#[test]
#[ignore = "slow: other languages"]
fn limits_py_passes_its_tests() {
    for example in Python("redis").run("../../tests/once/clients/limits_test.py") {
        // A fixed seed of Python's hashes places the keys of a share as in each other run.
        example.with("PYTHONHASHSEED", "0").with("TIMEOUT", "3600").output(Server::start().port);
    }
}

#[test]
#[ignore = "slow: a million decisions"]
fn the_shares_of_limits_js_and_limits_lua_pass_nothing_beyond_the_exact_rule() {
    for example in DEBIAN_NODE.run("node ../../tests/once/clients/share.js") {
        assert_eq!(example.output(0), "1200000 decisions, many taken, 0 beyond, 2 MB\n");
    }
    for example in examples("nginx") {
        assert_eq!(Http::start(&example, Server::start().port).get("/exact", "").2, "many taken, 0 beyond\n");
    }
}

#[test]
#[ignore = "slow: other languages"]
fn limits_js_accepts_no_wrong_number_and_remembers_a_refused_caller() {
    let expected = "10 limits and 5 quantities are refused\n403 {}\n413 {}\n\
        1000 calls wait for a reply at once, 200 are decided by the share\n1 call of Redis for 1000 refusals\nbounded\n\
        [ 503, { 'Retry-After': 1 }, 'share' ] [ 200, {}, 'share' ]\n2 clients\n";
    let [debian, npm] = [DEBIAN_NODE, Npm].map(|node| node.run("node ../../tests/once/clients/limits.js"));
    let ioredis: Vec<_> = npm.iter().map(|npm| npm.with("CLIENT", "ioredis.js")).collect();
    for example in [debian, npm, ioredis].concat() {
        let printed = example.with("TIMEOUT", "3600").output(Server::start().port);
        assert_eq!(printed, expected, "{example:?}");
    }
}
