//! The module where the server has it, and the script where it has not, on the same state.

use crate::support::endpoint::Endpoint;
use crate::support::examples::DEBIAN_NODE;
use crate::support::examples::Libraries::{Npm, Python};
use crate::support::programs::signal;
use crate::support::recipes::Dialogue;
use crate::support::replication::{catch_up, follow, replicate};
use crate::support::traffic::side_by_side;
use crate::support::{Server, run, wait_for, wait_until};

/// 30 tokens, none of which comes back within the test; then a quota that never decides.
const CALL: &str = "user123 29 1 86400 1 999 1000 86400";

#[test]
#[ignore = "slow: Python"]
fn a_limiter_goes_on_where_it_was_when_the_server_loses_the_module_and_gets_it_back() {
    let python = Python("redis").run("../../tests/once/recipes/switch.py");
    let node = [DEBIAN_NODE, Npm].map(|libraries| libraries.run("node ../../tests/once/recipes/switch.js"));
    side_by_side(python.into_iter().chain(node.concat()), |program| {
        let (with, without) = (Server::start(), Server::start_bare(&[]));
        replicate(&without, &with);
        let address = Endpoint::to(with.port);
        let command = program.command(address.port);
        let mut limiter = Dialogue::start(command);
        let mut left = (0..30).rev();
        let mut call = |decides: &str| {
            // A client that has lost its connection may need a moment for another one.
            let answer = wait_for("an answer", || {
                let answer = limiter.ask(CALL);
                (answer.ends_with("module") || answer.ends_with("script")).then_some(answer)
            });
            let left = left.next().unwrap();
            assert!(answer.starts_with(&format!("0 30 {left} -1 ")), "{program:?}: {answer}, not {left} left");
            assert!(answer.ends_with(decides), "{program:?}: {answer}");
        };
        let fail_over = |from: &Server, to: &Server| {
            catch_up(to, from);
            run::<()>(&mut to.connect(), "REPLICAOF NO ONE").unwrap();
            follow(from, to);
            address.lead_to(to.port);
        };
        for _ in 0..10 {
            call("module");
        }
        // The connections to the old server end.
        fail_over(&with, &without);
        run::<i64>(&mut with.connect(), "CLIENT KILL TYPE normal").unwrap();
        // The client may not yet know that its connection has ended.
        call("");
        for _ in 0..9 {
            call("script");
        }
        replicate(&with, &without);
        fail_over(&without, &with);
        // The client learns it from the error of a replica.
        call("");
        for _ in 0..9 {
            call("module");
        }
        let mut is_limited = || limiter.ask(CALL).starts_with("1 30 0 ");
        assert!(is_limited(), "{program:?}");
        signal(with.pid(), "STOP");
        assert!(!is_limited(), "{program:?}, beside a silent server");
        signal(with.pid(), "CONT");
        wait_until("an answer after a silence of the server", &mut is_limited);
        address.silence();
        wait_until("another connection after a silent one", is_limited);
    });
}
