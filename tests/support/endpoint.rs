//! One address in front of several servers, as a Service of Kubernetes is: a connection stays with its first server.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::spawn;

pub struct Endpoint {
    pub port: u16,
    server: Arc<AtomicU16>,
    /// How often `silence` was called. A connection that is older than the last call passes nothing on.
    silences: Arc<AtomicUsize>,
    clients: Arc<Mutex<Vec<TcpStream>>>,
}

impl Endpoint {
    /// Starts to listen, and leads each connection to the server on this port.
    pub fn to(server: u16) -> Self {
        let (server, silences) = (Arc::new(AtomicU16::new(server)), Arc::new(AtomicUsize::new(0)));
        let clients = Arc::<Mutex<Vec<TcpStream>>>::default();
        let (to, silenced, connected) = (server.clone(), silences.clone(), clients.clone());
        let filters = move |client: &TcpStream| {
            connected.lock().unwrap().push(client.try_clone().unwrap());
            let (silences, born) = (silenced.clone(), silenced.load(Ordering::Relaxed));
            move |_: bool, _: &[u8]| match silences.load(Ordering::Relaxed) > born {
                true => Fate::Lost,
                false => Fate::PassedOn,
            }
        };
        let port = relay(move || to.load(Ordering::Relaxed), filters);
        Self { port, server, silences, clients }
    }

    /// Leads new connections to this server.
    pub fn lead_to(&self, server: u16) {
        self.server.store(server, Ordering::Relaxed);
    }

    /// Breaks off all connections, and returns whether there were any.
    pub fn cut(&self) -> bool {
        let clients = std::mem::take(&mut *self.clients.lock().unwrap());
        clients.iter().filter(|client| client.shutdown(Shutdown::Both).is_ok()).count() > 0
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
    filters: impl Fn(&TcpStream) -> F + Send + 'static,
) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    // The thread accepts connections until the tests end.
    spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(server) = TcpStream::connect(("127.0.0.1", server())) else { continue };
            let filter = filters(&client);
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
