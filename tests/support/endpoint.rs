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
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let endpoint =
            Self { port, server: Arc::new(server.into()), silences: Arc::default(), clients: Arc::default() };
        let clients = endpoint.clients.clone();
        let (server, silences) = (endpoint.server.clone(), endpoint.silences.clone());
        // The thread accepts connections until the tests end.
        spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server.load(Ordering::Relaxed))) else { continue };
                let silent = {
                    let (silences, born) = (silences.clone(), silences.load(Ordering::Relaxed));
                    move || silences.load(Ordering::Relaxed) > born
                };
                clients.lock().unwrap().push(client.try_clone().unwrap());
                let [from, to] = [&client, &server].map(|stream| stream.try_clone().unwrap());
                spawn({
                    let silent = silent.clone();
                    move || pass_on(from, to, silent)
                });
                spawn(move || pass_on(server, client, silent));
            }
        });
        endpoint
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

fn pass_on(mut from: TcpStream, mut to: TcpStream, silent: impl Fn() -> bool) {
    let mut bytes = [0; 4096];
    while let Ok(length @ 1..) = from.read(&mut bytes) {
        if !silent() && to.write_all(&bytes[..length]).is_err() {
            break;
        }
    }
    for stream in [from, to] {
        let _ = stream.shutdown(Shutdown::Both);
    }
}
