//! A network that loses an answer, and breaks off a connection.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::spawn;

/// Returns the port of a proxy to this server. The proxy counts the calls of this command from 0. It loses the answer to
/// one, and closes the connection at another.
pub fn losing(server: u16, command: &'static str, lost: usize, closed: usize) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let calls = Arc::new(AtomicUsize::new(0));
    // The thread accepts connections until the tests end.
    spawn(move || {
        for client in listener.incoming().flatten() {
            let calls = calls.clone();
            spawn(move || pass_on(client, server, command, &calls, (lost, closed)));
        }
    });
    port
}

fn pass_on(mut client: TcpStream, server: u16, command: &str, calls: &AtomicUsize, (answer, closed): (usize, usize)) {
    let mut server = TcpStream::connect(("127.0.0.1", server)).unwrap();
    let lost = Arc::new(AtomicBool::new(false));
    let (mut from, mut to, losing) = (server.try_clone().unwrap(), client.try_clone().unwrap(), lost.clone());
    spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(length @ 1..) = from.read(&mut bytes) {
            if !losing.load(Ordering::Relaxed) && to.write_all(&bytes[..length]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
    let mut bytes = [0; 4096];
    while let Ok(length @ 1..) = client.read(&mut bytes) {
        if bytes[..length].windows(command.len()).any(|word| word == command.as_bytes()) {
            let call = calls.fetch_add(1, Ordering::Relaxed);
            if call == closed {
                break;
            }
            lost.fetch_or(call == answer, Ordering::Relaxed);
        }
        if server.write_all(&bytes[..length]).is_err() {
            break;
        }
    }
    let _ = server.shutdown(Shutdown::Both);
}
