//! A network that loses an answer, breaks off a connection, or makes none.

use std::iter::from_fn;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use super::endpoint::{Fate, relay};

/// Returns a port at which nobody answers a further connection, and the connections that fill the listener's queue.
pub fn unanswered() -> (u16, (TcpListener, Vec<TcpStream>)) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let connections = from_fn(|| TcpStream::connect_timeout(&address, Duration::from_millis(500)).ok()).collect();
    (address.port(), (listener, connections))
}

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
