//! docs/recipes/ban.py: log-ins, and their guessers.

use crate::support::clock::Clock;
use crate::support::pages::text_of;
use crate::support::programs::{output, python};
use crate::support::recipes::{START, prints_what_the_page_shows};
use crate::support::{Server, run};

#[test]
#[ignore = "slow: attacks"]
fn a_caller_with_too_many_wrong_passwords_is_kept_out_and_a_right_one_counts_for_nothing() {
    let (_clock, server, _) = Clock::start(START);
    prints_what_the_page_shows("ban.py", &server);
    let mut connection = server.connect();
    let lift = "DEL attempts:{account:alice} banned:{account:alice} offences:{account:alice}";
    assert!(text_of("docs/recipes.md").contains(lift));
    run::<()>(&mut connection, lift).unwrap();
    // The ban is lifted.
    prints_what_the_page_shows("ban.py", &server);
    // Guesses at an account with the name of an address do not ban the address. A restarted server does not know the
    // script.
    assert_eq!(output(&mut python("../tests/once/recipes/ban_kinds.py", &server)), "account\n");
}

#[test]
#[ignore = "slow: Python"]
fn a_right_password_counts_even_if_its_attempt_cannot_be_given_back() {
    let server = Server::start();
    assert_eq!(output(&mut python("../tests/once/recipes/ban_killed.py", &server)), "True\n");
}
