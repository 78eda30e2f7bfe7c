//! A run of the tests that is killed.

use std::thread;

use crate::support::{Server, wait_until};

/// A killed run drops no server, but its threads end, and each server ends with the thread that started it.
#[test]
fn a_run_that_is_killed_leaves_no_server() {
    let server = thread::spawn(Server::start).join().unwrap();
    wait_until("the server ends", || server.client().get_connection().is_err());
}
