//! docs/recipes/shadow.py: a limit that is tried out.

use std::process::Stdio;

use crate::support::clock::Clock;
use crate::support::programs;
use crate::support::recipes::{START, prints, program};

#[test]
#[ignore = "slow: Python"]
fn a_shadow_refuses_nothing_and_the_day_on_which_it_counts_begins_with_all_tokens() {
    let (_clock, mut server) = Clock::start(START);
    let expected = "\
        shadow: 20 of 20 pass, {'allowed': 16, 'limited': 4}\n\
        enforced: 16 of 20 pass, {'allowed': 16, 'limited': 4}\n";
    prints("shadow.py", &server, expected);
    // If no server answers, the shadow allows, counts and logs the call, and the limit leaves the choice to its caller.
    let mut later = program("shadow_killed.py", &server);
    server.kill();
    let said = programs::output_and_errors(later.stderr(Stdio::piped()));
    assert!(said.starts_with("True {'error': 1}\nan error\nno limits, failing open: Error "), "{said}");
}
