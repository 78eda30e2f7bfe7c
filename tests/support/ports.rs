//! Finds free ports on this machine.

use std::net::TcpListener;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};

/// Returns a free port. The port 10,000 above it, which a cluster node also needs, is free as well. Each run reserves
/// 300 ports by listening on the first of them.
pub fn free_port() -> u16 {
    static FIRST: OnceLock<TcpListener> = OnceLock::new();
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let listen = |port| TcpListener::bind(("127.0.0.1", port));
    let first = FIRST.get_or_init(|| (11_000..20_000).step_by(300).find_map(|port| listen(port).ok()).unwrap());
    let first = first.local_addr().unwrap().port();
    loop {
        let port = first + 1 + NEXT.fetch_add(1, Ordering::Relaxed) % 299;
        if listen(port).is_ok() && listen(port + 10_000).is_ok() {
            return port;
        }
    }
}
