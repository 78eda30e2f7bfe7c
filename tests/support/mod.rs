//! Real servers for the tests. Each starts on a free port of this machine, in a folder of its own, and ends when it is
//! dropped.
//!
//! `SERVER` names the server's executable (`redis-server` unless set), `MODULE` the library (the release build unless
//! set), and `MODULE_CC` the compiler of the C files loaded beside it (`cc` unless set). All three have to be for the
//! same platform, whichever that is.

pub mod aof;
pub mod callbacks;
pub mod clock;
pub mod cluster;
pub mod commands;
pub mod endpoint;
pub mod examples;
pub mod expected;
pub mod hostile;
#[path = "../../src/funnel/model.rs"]
pub mod model;
pub mod needs;
pub mod pages;
pub mod programs;
pub mod random;
pub mod recipes;
pub mod replication;
pub mod reservations;
pub mod sentinel;
pub mod traffic;

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread::sleep;
use std::time::Duration;

use redis::{Client, Connection, FromRedisValue, RedisError, RedisResult};
use tempfile::TempDir;

pub use commands::COMMANDS;

/// The folder into which the package and the image put the library, and which their settings name.
pub const MODULES: &str = "/usr/lib/redis/modules";

/// Returns a number that the environment may override.
pub fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect(name))
}

/// Runs a command that is written as a user types it, words split at spaces.
pub fn run<T: FromRedisValue>(connection: &mut impl redis::ConnectionLike, line: &str) -> RedisResult<T> {
    command(line).query(connection)
}

/// Builds a command from its words as a user types them.
pub fn command(line: &str) -> redis::Cmd {
    let mut command = redis::Cmd::new();
    for word in line.split_whitespace() {
        command.arg(word);
    }
    command
}

/// Calls `CL.THROTTLE` with these arguments; fails unless the reply is five integers.
pub fn throttle(connection: &mut impl redis::ConnectionLike, arguments: &str) -> [i64; 5] {
    run(connection, &format!("CL.THROTTLE {arguments}")).unwrap()
}

/// Returns the text of the error that a command gets, code first.
pub fn error_of(connection: &mut impl redis::ConnectionLike, line: &str) -> String {
    error_text(&run::<redis::Value>(connection, line).expect_err(line))
}

/// Returns an error's text as the server sent it.
pub fn error_text(error: &RedisError) -> String {
    format!("{} {}", error.code().unwrap_or_default(), error.detail().unwrap_or_default())
}

/// A server process of the test's own.
pub struct Server {
    pub port: u16,
    pub folder: PathBuf,
    executable: PathBuf,
    settings: Option<PathBuf>,
    arguments: Vec<String>,
    environment: Vec<(&'static str, PathBuf)>,
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

    /// Starts this executable without the module, and waits until it answers.
    pub fn start_executable(executable: &Path, arguments: &[&str]) -> Self {
        Self::of(executable, arguments).launched()
    }

    /// Starts a server with a file of settings, which the server may rewrite.
    pub fn start_from(settings: &Path, arguments: &[&str]) -> Self {
        let mut server = Self::new(arguments);
        server.settings = Some(settings.to_path_buf());
        server.launched()
    }

    /// Returns the log of a server that must not start with these settings.
    pub fn refused(arguments: &[&str]) -> String {
        let mut server = Self::new(arguments);
        assert!(!server.launch(), "the server started:\n{}", server.log());
        server.log()
    }

    fn new(arguments: &[&str]) -> Self {
        Self::of(&executable(), &[needs::all_commands(), arguments].concat())
    }

    fn of(executable: &Path, arguments: &[&str]) -> Self {
        Self {
            port: free_port(),
            folder: new_folder().keep(),
            executable: executable.to_path_buf(),
            settings: None,
            arguments: arguments.iter().map(ToString::to_string).collect(),
            environment: Vec::new(),
            process: None,
        }
    }

    /// Starts the process again, in the same folder and on the same port, or on another if that is taken by now.
    pub fn restart(&mut self) {
        self.kill();
        self.launch_on_a_free_port();
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

    pub fn connect_resp3(&self) -> Connection {
        let client = Client::open(format!("redis://127.0.0.1:{}/?protocol=resp3", self.port)).unwrap();
        client.get_connection().unwrap()
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Returns the id of the server's process, for its memory and its CPU time.
    pub fn pid(&self) -> u32 {
        self.process.as_ref().unwrap().id()
    }

    fn launched(mut self) -> Self {
        self.launch_on_a_free_port();
        self
    }

    /// Starts the server on a free port; tries another if a process takes the port before the server does.
    fn launch_on_a_free_port(&mut self) {
        for _ in 0..5 {
            let logged = self.log().len();
            if self.launch() {
                return;
            }
            let log = &self.log()[logged..];
            assert!(log.contains("in use"), "the server did not start:\n{log}");
            self.port = free_port();
        }
        panic!("no free port");
    }

    /// Starts the server, and returns whether it became ready.
    fn launch(&mut self) -> bool {
        let logged = self.log().len();
        let port = self.port.to_string();
        let folder = self.folder.to_str().unwrap();
        let log = fs::File::options().append(true).create(true).open(self.folder.join("log")).unwrap();
        let mut command = Command::new(&self.executable);
        command
            .args(&self.settings)
            .args(["--port", &port, "--bind", "127.0.0.1", "--dir", folder, "--save", ""])
            // A primary makes the first replica's snapshot at once; it does not wait for a second replica.
            .args(["--repl-diskless-sync-delay", "0"])
            .args(&self.arguments)
            // A server refuses to start in a locale that the machine lacks.
            .env("LC_ALL", "C")
            .envs(self.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        let process = command.spawn().unwrap_or_else(|error| match error.kind() {
            ErrorKind::NotFound => panic!("{} is not installed; scripts/test installs it", self.executable.display()),
            _ => panic!("{}: {error}", self.executable.display()),
        });
        self.process = Some(process);
        // The server may have to load a large file, on two cores that many servers share.
        wait_for(&format!("a server is ready or gone, see {folder}/log"), || {
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

/// Every limiter of a database by its key: its text, and its expiry in ms since the epoch (-1 for never).
pub type Snapshot = BTreeMap<Vec<u8>, (Vec<u8>, i64)>;

/// Reads every string in the database.
pub fn snapshot(connection: &mut impl redis::ConnectionLike) -> Snapshot {
    let rows: Vec<(Vec<u8>, Vec<u8>, i64)> =
        redis::Script::new(include_str!("snapshot.lua")).invoke(connection).unwrap();
    rows.into_iter().map(|(key, text, expires_at)| (key, (text, expires_at))).collect()
}

/// Returns one field of `INFO`.
pub fn info(connection: &mut impl redis::ConnectionLike, field: &str) -> String {
    let info: String = run(connection, "INFO all").unwrap();
    info.lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
        .unwrap_or_else(|| panic!("no {field} in {info}"))
        .to_string()
}

/// Makes a snapshot of the server fail, after which it refuses writes until one succeeds.
pub fn fail_to_save(server: &Server) {
    let mut connection = server.connect();
    command("CONFIG SET save").arg("3600 1").exec(&mut connection).unwrap();
    // A folder with the file's name makes the snapshot fail.
    let file = server.folder.join("dump.rdb");
    let _ = fs::remove_file(&file);
    fs::create_dir(&file).unwrap();
    run::<()>(&mut connection, "BGSAVE").unwrap();
    wait_until("the snapshot fails", || info(&mut connection, "rdb_last_bgsave_status") == "err");
    fs::remove_dir(&file).unwrap();
}

/// The time that a test waits for bytes, which take a slow machine long.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until the condition holds.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    wait_for(what, || holds().then_some(()));
}

/// Asks until there is an answer, and returns it; fails after 2,400 asks, which take two minutes or, on a slow machine,
/// longer. The pauses grow.
pub fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    for number in 0..2_400 {
        if let Some(answer) = ask() {
            return answer;
        }
        sleep(Duration::from_millis((2 + number).min(50)));
    }
    panic!("never happened: {what}");
}

/// Returns the executable of the server under test.
pub fn executable() -> PathBuf {
    std::env::var_os("SERVER").map_or_else(|| "redis-server".into(), PathBuf::from)
}

/// Returns the path of `MODULE`, or of the release build. The first test that asks builds it, so that it is up to date.
pub fn module() -> &'static str {
    static MODULE: OnceLock<Option<String>> = OnceLock::new();
    let module = MODULE.get_or_init(|| {
        if let Some(module) = std::env::var_os("MODULE") {
            let path =
                fs::canonicalize(&module).unwrap_or_else(|error| panic!("MODULE: {}: {error}", module.display()));
            return Some(path.to_str().unwrap().to_string());
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        // The cargo that runs the tests, if there is one. It prints its errors itself, and only once.
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        let build = cargo.args(["build", "--release", "--locked", "--quiet"]).current_dir(root).status();
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        build.unwrap().success().then(|| format!("{}/release/libredis_cell.so", target.display()))
    });
    module.as_ref().expect("the module did not build: see above")
}

/// Returns the path of the library of a C file of this folder, compiled once. redis_cell.c is a stand-in for brandur's
/// redis-cell.
pub fn compiled(name: &'static str) -> &'static str {
    static LIBRARIES: Mutex<BTreeMap<&str, &str>> = Mutex::new(BTreeMap::new());
    LIBRARIES.lock().unwrap().entry(name).or_insert_with(|| compile(name).leak())
}

fn compile(name: &str) -> String {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/support/{name}.c"));
    let compiler = std::env::var("MODULE_CC").unwrap_or("cc".to_string());
    // Each compiler has a library of its own: runs on servers of several platforms share the folder.
    let library = format!("{name}-{}.so", compiler.replace('/', "-"));
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(library);
    // Compile elsewhere, then move: another run may be using the old library at this moment.
    let folder = new_folder();
    let [object, new] = ["o", "so"].map(|kind| folder.path().join(name).with_extension(kind));
    let compile = |arguments: &[&str], from: &Path, to: &Path| {
        let status = Command::new(&compiler).args(arguments).arg("-o").args([to, from]).status();
        let status = status.unwrap_or_else(|error| panic!("the C compiler {compiler} does not run: {error}"));
        assert!(status.success(), "{name}.c does not compile");
    };
    compile(&["-c", "-fPIC", "-O1", "-Wall", "-Werror"], &source, &object);
    // Do not link a C library: the server has one, and a shell that starts the server may have another.
    compile(&["-shared", "-nostdlib"], &object, &new);
    fs::rename(&new, &library).unwrap();
    library.to_str().unwrap().to_string()
}

/// Returns a free port; the port 10,000 above it, which a cluster node also needs, is free too. Runs do not share
/// ports: each reserves three hundred, by listening on the first of them until it ends.
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

/// Makes a folder that is gone when dropped.
pub fn new_folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}
