//! A server whose wall clock stands where the test puts it.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use super::{Server, executable, module, new_folder};

pub struct Clock {
    file: File,
    folder: PathBuf,
}

impl Clock {
    /// A server, with the module, that reads this clock and no other.
    pub fn start(now: i64) -> (Self, Server) {
        let folder = new_folder();
        let path = folder.join("clock");
        fs::write(&path, now.to_ne_bytes()).unwrap();
        let clock = Self {
            file: File::options().write(true).open(&path).unwrap(),
            folder,
        };
        let environment = [("LD_PRELOAD", library()), ("CLOCK", path)];
        let module = module();
        let arguments = ["--loadmodule", module.to_str().unwrap()];
        let server = Server::start_in(&environment, &executable(), &arguments);
        (clock, server)
    }

    /// Moves the clock to this many nanoseconds since the epoch.
    pub fn set(&self, now: i64) {
        self.file.write_all_at(&now.to_ne_bytes(), 0).unwrap();
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// `clock.c`, compiled.
fn library() -> PathBuf {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY
        .get_or_init(|| {
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/clock.c");
            let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
            let library = folder.join("clock.so");
            // Moved into place: another run may be using the old one at this moment.
            let new = folder.join(format!("clock-{}.so", std::process::id()));
            let status = Command::new("cc")
                .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"])
                .args([&new, &source])
                .status()
                .expect("cc, a C compiler, is not installed: see scripts/test");
            assert!(status.success(), "clock.c does not compile");
            fs::rename(&new, &library).unwrap();
            library
        })
        .clone()
}
