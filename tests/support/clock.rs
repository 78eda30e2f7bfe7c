//! A server whose wall clock the test sets.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use redis::Connection;
use tempfile::TempDir;

use super::{Server, compiled, module, new_folder, run};

pub const SECOND: i64 = 1_000_000_000;
pub const MILLISECOND: i64 = 1_000_000;

/// The clock's usual time at the start of a test: in 2026, and not at a whole second.
pub const START: i64 = 1_790_000_000_123_456_789;

pub struct Clock {
    file: File,
    _folder: TempDir,
}

impl Clock {
    /// Starts a server with the module and with a clock that shows `now`, and connects to the server.
    pub fn start(now: i64) -> (Self, Server, Connection) {
        Self::start_with(now, &[])
    }

    /// Does the same as `start`, with additional settings.
    pub fn start_with(now: i64, settings: &[&str]) -> (Self, Server, Connection) {
        Self::start_bare(now, &[&["--loadmodule", module()], settings].concat())
    }

    /// Starts a server without the module. Keys expire only when a command reads them: the server's active expiry,
    /// which could delete them at any moment, is off.
    pub fn start_bare(now: i64, settings: &[&str]) -> (Self, Server, Connection) {
        let folder = new_folder();
        let path = folder.path().join("clock");
        fs::write(&path, [now, 0].map(i64::to_ne_bytes).concat()).unwrap();
        let clock = Self { file: File::options().write(true).open(&path).unwrap(), _folder: folder };
        let mut server = Server::new(None, settings);
        server.command.env("LD_PRELOAD", compiled("clock")).env("CLOCK", path);
        let (server, mut connection) = server.launched().connected();
        run::<()>(&mut connection, "DEBUG SET-ACTIVE-EXPIRE 0").unwrap();
        (clock, server, connection)
    }

    /// Sets the clock to this many nanoseconds since the epoch.
    pub fn set(&self, now: i64) {
        self.file.write_all_at(&now.to_ne_bytes(), 0).unwrap();
    }

    /// Adds this many seconds to the time that was set, to reach times whose nanoseconds do not fit in 64 bits.
    pub fn shift(&self, seconds: i64) {
        self.file.write_all_at(&seconds.to_ne_bytes(), 8).unwrap();
    }
}
