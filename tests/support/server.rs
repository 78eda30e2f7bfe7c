//! A server of the test's own, on a free port, in a folder of its own; it ends when it is dropped.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use redis::{Client, Connection};

use super::compiling::module;
use super::ports::free_port;
use super::waiting::wait_for;
use super::{needs, new_folder};

/// A server process of the test's own.
pub struct Server {
    pub port: u16,
    pub folder: PathBuf,
    /// The command that starts the process.
    pub(super) command: Command,
    process: Option<Child>,
}

impl Server {
    /// Starts a server with the module, which writes nothing to disk.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server with the module and further settings, given as on the server's command line.
    pub fn start_with(arguments: &[&str]) -> Self {
        Self::start_bare(&[&["--loadmodule", module()], arguments].concat())
    }

    /// Starts a server without the module.
    pub fn start_bare(arguments: &[&str]) -> Self {
        Self::new(arguments).launched()
    }

    /// Starts a server with a file of settings, which the server may rewrite.
    pub fn start_from(settings: &Path, arguments: &[&str]) -> Self {
        Self::of(&executable(), Some(settings), &[needs::all_commands(), arguments].concat()).launched()
    }

    /// Returns the log of a server that must not start with these settings.
    pub fn refused(arguments: &[&str]) -> String {
        let mut server = Self::new(arguments);
        assert!(!server.launch(), "the server started:\n{}", server.log());
        server.log()
    }

    pub(super) fn new(arguments: &[&str]) -> Self {
        Self::of(&executable(), None, &[needs::all_commands(), arguments].concat())
    }

    fn of(executable: &Path, settings: Option<&Path>, arguments: &[&str]) -> Self {
        let (port, folder) = (free_port(), new_folder().keep());
        let log = fs::File::options().append(true).create(true).open(folder.join("log")).unwrap();
        let mut command = ends_with_the_test(executable);
        command
            .args(settings)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--dir", folder.to_str().unwrap(), "--save", ""])
            // A primary makes the first replica's snapshot at once; it does not wait for a second replica.
            .args(["--repl-diskless-sync-delay", "0"])
            .args(arguments)
            // A server refuses to start in a locale that the machine lacks.
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        Self { port, folder, command, process: None }
    }

    /// Starts the process again, in the same folder and on the same port.
    pub fn restart(&mut self) {
        self.kill();
        assert!(self.launch(), "the server did not start again:\n{}", self.log());
    }

    /// Ends the process at once, as a crash does.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let children = format!("/proc/{0}/task/{0}/children", process.id());
            let children = fs::read_to_string(children).unwrap_or_default();
            process.kill().unwrap();
            process.wait().unwrap();
            // A child that writes a file for the server would outlive it, on Redis 6.2 for seconds and with the
            // clients' connections open.
            if !children.trim().is_empty() {
                let kill = format!("kill -9 {children}");
                let _ = Command::new("sh").args(["-c", &kill]).stderr(Stdio::null()).status();
            }
        }
    }

    pub fn client(&self) -> Client {
        Client::open(format!("redis://127.0.0.1:{}/", self.port)).unwrap()
    }

    /// Connects without a timeout: a read that has one fails with EINTR when a program of another test ends.
    pub fn connect(&self) -> Connection {
        self.client().get_connection().unwrap()
    }

    /// Returns the server and a connection to it.
    pub fn connected(self) -> (Self, Connection) {
        let connection = self.connect();
        (self, connection)
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Returns the id of the server's process, for its memory and its CPU time.
    pub fn pid(&self) -> u32 {
        self.process.as_ref().unwrap().id()
    }

    pub(super) fn launched(mut self) -> Self {
        assert!(self.launch(), "the server did not start:\n{}", self.log());
        self
    }

    /// Starts the server, and returns whether it became ready.
    fn launch(&mut self) -> bool {
        let logged = self.log().len();
        self.process = Some(self.command.spawn().unwrap_or_else(|error| panic!("{:?}: {error}", self.command)));
        // The server may have to load a large file, on two cores that many servers share.
        wait_for(&format!("a server is ready or gone, see {}/log", self.folder.display()), || {
            let gone = self.process.as_mut().unwrap().try_wait().unwrap().is_some();
            // The log tells when it is ready: another process may answer on its port.
            let ready = self.log()[logged..].contains("Ready to accept connections");
            (gone || ready).then_some(!gone)
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

/// Returns a command whose process ends with the thread that starts it, also if the tests are killed.
pub fn ends_with_the_test(executable: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(executable);
    command
}

/// Any process, killed when dropped.
pub struct Process(pub Child);

impl Process {
    pub fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the executable of the server under test.
pub fn executable() -> PathBuf {
    std::env::var_os("SERVER").map_or_else(|| "redis-server".into(), PathBuf::from)
}
