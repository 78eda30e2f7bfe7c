//! A network that loses an answer, and breaks off a connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::endpoint::{Fate, relay};

/// Returns the port of a relay to this server, which counts the calls of this command from 0. It loses the answer to
/// one and all answers after that on its connection, and closes the connection at another.
pub fn losing(server: u16, command: &'static str, lost: usize, closed: usize) -> u16 {
    let calls = Arc::new(AtomicUsize::new(0));
    let filters = move |_: &_| {
        let (calls, loses) = (calls.clone(), Arc::new(AtomicBool::new(false)));
        move |to_the_server: bool, bytes: &[u8]| {
            if to_the_server && bytes.windows(command.len()).any(|word| word == command.as_bytes()) {
                let call = calls.fetch_add(1, Ordering::Relaxed);
                loses.fetch_or(call == lost, Ordering::Relaxed);
                if call == closed {
                    return Fate::Closed;
                }
            }
            if !to_the_server && loses.load(Ordering::Relaxed) { Fate::Lost } else { Fate::PassedOn }
        }
    };
    relay(move || server, filters)
}
