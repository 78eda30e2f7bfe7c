//! One address in front of several servers, as a Service of Kubernetes is: a connection stays with its first server.
//! And a network that loses an answer, breaks off a connection, or makes none.

use std::io::{Read, Write};
use std::iter::from_fn;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use std::thread::spawn;
use std::time::Duration;

pub struct Endpoint {
    pub port: u16,
    server: Arc<AtomicU16>,
    /// How often `silence` was called. A connection that is older than the last call passes nothing on.
    silences: Arc<AtomicUsize>,
}

impl Endpoint {
    /// Starts to listen, and leads each connection to the server on this port.
    pub fn to(server: u16) -> Self {
        let (server, silences) = (Arc::new(AtomicU16::new(server)), Arc::new(AtomicUsize::new(0)));
        let (to, silenced) = (server.clone(), silences.clone());
        let filters = move || {
            let (silences, born) = (silenced.clone(), silenced.load(Ordering::Relaxed));
            move |_: bool, _: &[u8]| match silences.load(Ordering::Relaxed) > born {
                true => Fate::Lost,
                false => Fate::PassedOn,
            }
        };
        Self { port: relay(move || to.load(Ordering::Relaxed), filters), server, silences }
    }

    /// Leads new connections to this server.
    pub fn lead_to(&self, server: u16) {
        self.server.store(server, Ordering::Relaxed);
    }

    /// Loses all further bytes of the connections that there are, and keeps the connections open.
    pub fn silence(&self) {
        self.silences.fetch_add(1, Ordering::Relaxed);
    }
}

/// The fate of bytes that have come to a relay.
pub enum Fate {
    PassedOn,
    Lost,
    /// They are lost, and the connection is closed.
    Closed,
}

/// Starts to listen, and leads each connection to the port that `server` returns. The connection's filter decides on
/// all bytes; its first argument says whether they are on their way to the server. Returns the port.
pub fn relay<F: Fn(bool, &[u8]) -> Fate + Clone + Send + 'static>(
    server: impl Fn() -> u16 + Send + 'static,
    filters: impl Fn() -> F + Send + 'static,
) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    // The thread accepts connections until the tests end.
    spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(server) = TcpStream::connect(("127.0.0.1", server())) else { continue };
            let filter = filters();
            for (from, to, to_the_server) in [(&client, &server, true), (&server, &client, false)] {
                let [from, to] = [from, to].map(|stream| stream.try_clone().unwrap());
                let filter = filter.clone();
                spawn(move || pass_on(from, to, |bytes| filter(to_the_server, bytes)));
            }
        }
    });
    port
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, filter: impl Fn(&[u8]) -> Fate) {
    let mut bytes = [0; 4096];
    while let Ok(length @ 1..) = from.read(&mut bytes) {
        let goes_on = match filter(&bytes[..length]) {
            Fate::PassedOn => to.write_all(&bytes[..length]).is_ok(),
            Fate::Lost => true,
            Fate::Closed => false,
        };
        if !goes_on {
            break;
        }
    }
    for stream in [from, to] {
        let _ = stream.shutdown(Shutdown::Both);
    }
}

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
    let filters = move || {
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
