//! A server on a free port, with its own folder. The server is killed when it is dropped.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use redis::{Client, Connection};

use super::compiling::module;
use super::ports::free_port;
use super::waiting::wait_for;
use super::{needs, new_folder};

pub struct Server {
    pub port: u16,
    pub folder: PathBuf,
    pub(super) command: Command,
    process: Option<Child>,
}

impl Server {
    /// Starts a server that has the module and writes nothing to disk.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server with the module and additional arguments.
    pub fn start_with(arguments: &[&str]) -> Self {
        Self::start_bare(&[&["--loadmodule", module()], arguments].concat())
    }

    /// Starts a server without the module.
    pub fn start_bare(arguments: &[&str]) -> Self {
        Self::new(None, arguments).launched()
    }

    /// Starts a server with a configuration file, which the server may rewrite.
    pub fn start_from(settings: &Path, arguments: &[&str]) -> Self {
        Self::new(Some(settings), arguments).launched()
    }

    /// Starts a server that must refuse to start with these arguments, and returns its log.
    pub fn refused(arguments: &[&str]) -> String {
        let mut server = Self::new(None, arguments);
        assert!(!server.launch(), "the server started:\n{}", server.log());
        server.log()
    }

    pub(super) fn new(settings: Option<&Path>, arguments: &[&str]) -> Self {
        let (port, folder) = (free_port(), new_folder().keep());
        let log = fs::File::options().append(true).create(true).open(folder.join("log")).unwrap();
        let mut command = ends_with_the_test(executable());
        command
            .args(settings)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--dir", folder.to_str().unwrap(), "--save", ""])
            // Start the first replica's snapshot at once, without waiting for a second replica.
            .args(["--repl-diskless-sync-delay", "0"])
            .args(needs::all_commands())
            .args(arguments)
            // Use the C locale, because the server does not start in a locale that the machine lacks.
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

    /// Kills the process, as a crash would.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let children = format!("/proc/{0}/task/{0}/children", process.id());
            let children = fs::read_to_string(children).unwrap_or_default();
            process.kill().unwrap();
            process.wait().unwrap();
            // Kill the child processes as well. A child that writes a file would outlive the server, on Redis 6.2 by
            // seconds, and would keep the clients' connections open.
            if !children.trim().is_empty() {
                let kill = format!("kill -9 {children}");
                let _ = Command::new("sh").args(["-c", &kill]).stderr(Stdio::null()).status();
            }
        }
    }

    pub fn client(&self) -> Client {
        Client::open(format!("redis://127.0.0.1:{}/", self.port)).unwrap()
    }

    /// Connects without a timeout, because a read with a timeout fails with EINTR when another test's program ends.
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
        // Wait for a long time if necessary: the server may have to load a large file, on cores that many servers
        // share.
        wait_for(&format!("the server is ready or has exited, see {}/log", self.folder.display()), || {
            let gone = self.process.as_mut().unwrap().try_wait().unwrap().is_some();
            // Read the log instead of connecting: another process may be listening on the port.
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

/// Returns a command whose process is killed when the thread that starts it ends, even if the tests are killed.
pub fn ends_with_the_test(executable: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(executable);
    command
}

/// A process that is killed when it is dropped.
pub struct Process(Child);

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
