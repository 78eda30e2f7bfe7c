//! A gateway's token budgets: docs/budgets/gateway.py.

use redis::Connection;

use crate::support::clock::{Clock, MILLISECOND};
use crate::support::needs::{FUNCTIONS, needs};
use crate::support::pages::shows;
use crate::support::programs::{output, python};
use crate::support::recipes::START;
use crate::support::reservations::{ask, load};
use crate::support::{Server, info, run, wait_until};

const MINUTE: i64 = 60_000 * MILLISECOND;

/// Starts a server, and lets the program call it. Fails unless it prints this, and takes that many of alice's tokens.
fn prints(file: &str, expected: &str, taken: i64) -> (Clock, Server, Connection) {
    let (clock, server, _) = Clock::start(START);
    let mut connection = load(&server);
    assert_eq!(output(&mut python(file, &server)), expected);
    let tat: i64 = run(&mut connection, "GET {gate:acme}:alice:tokens").unwrap();
    assert_eq!(tat, START + taken * MINUTE / 20_000);
    (clock, server, connection)
}

#[test]
#[ignore = "slow: Python"]
fn the_gateway_charges_what_was_used_and_says_how_long_to_wait() {
    needs!(FUNCTIONS);
    // The user has used 26,000 of 20,000. So 6,000 have to come back, and 2,000 more for the estimate.
    let expected = "an answer\nan answer\nover budget 24\nover budget None\n";
    let (_clock, _server, mut connection) = prints("budgets/gateway.py", expected, 26_000);
    assert!(shows("docs/budgets.md", expected), "the page does not show what the program prints");
    assert_eq!(ask(&mut connection, "FCALL_RO reservations 1 {gate:acme}:calls").unwrap(), [0]);
}

/// A caller that hangs up before the answer's end has used the model. At the end the server stands still: it carries
/// some calls out after the program has given up.
#[test]
#[ignore = "slow: Python"]
fn a_call_that_fails_is_charged_once_or_not_at_all_and_frees_its_place_when_its_lease_ends_at_the_latest() {
    needs!(FUNCTIONS);
    let expected = "ConnectionRefusedError 2\nBrokenPipeError 2\nGeneratorExit 2\nResponseError 0\n\
                    an answer 6\nTimeoutError 6\nTimeoutError 2\nResponseError 0\nTimeoutError 0\n";
    let (clock, _server, mut connection) = prints("../tests/once/recipes/gateway_fails.py", expected, 15_000);
    wait_until("its calls are carried out", || info(&mut connection, "connected_clients") == "1");
    clock.set(START + MINUTE);
    assert_eq!(ask(&mut connection, "FCALL_RO reservations 1 {gate:acme}:calls").unwrap(), [0]);
}
