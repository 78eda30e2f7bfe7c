//! Real servers for the tests: started on free ports of loopback, each in a folder of its own, gone when dropped.
//!
//! `SERVER` names the server's executable (`redis-server` unless set); the module is the release build.

pub mod aof;
pub mod callbacks;
pub mod clock;
pub mod cluster;
pub mod expected;
pub mod hostile;
pub mod ledger;
pub mod model;
pub mod random;
pub mod replication;
pub mod traffic;

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redis::{Client, Connection, FromRedisValue, RedisResult};

/// A number that the environment may set.
pub fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect(name))
}

/// Runs a command that is written as a user types it, words split at spaces.
pub fn run<T: FromRedisValue>(connection: &mut impl redis::ConnectionLike, line: &str) -> RedisResult<T> {
    command(line).query(connection)
}

/// A command that is written as a user types it.
pub fn command(line: &str) -> redis::Cmd {
    let mut command = redis::Cmd::new();
    for word in line.split_whitespace() {
        command.arg(word);
    }
    command
}

/// `CL.THROTTLE` with these arguments, which has to be answered.
pub fn throttle(connection: &mut impl redis::ConnectionLike, arguments: &str) -> [i64; 5] {
    run(connection, &format!("CL.THROTTLE {arguments}")).unwrap()
}

/// A server process of the test's own.
pub struct Server {
    pub port: u16,
    pub folder: PathBuf,
    executable: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(&'static str, PathBuf)>,
    process: Option<Child>,
}

impl Server {
    /// With the module, and nothing on disk.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// With the module and further settings, as on the server's command line.
    pub fn start_with(arguments: &[&str]) -> Self {
        let module = module();
        let mut all = vec!["--loadmodule", module.to_str().unwrap()];
        all.extend(arguments);
        Self::start_bare(&all)
    }

    /// Without the module.
    pub fn start_bare(arguments: &[&str]) -> Self {
        Self::start_executable(&executable(), arguments)
    }

    /// Any server, without the module, ready to answer.
    pub fn start_executable(executable: &Path, arguments: &[&str]) -> Self {
        Self::start_in(&[], executable, arguments)
    }

    /// What a server logs that does not start with these settings.
    pub fn refused(arguments: &[&str]) -> String {
        let mut server = Self::new(&[], &executable(), arguments);
        assert!(!server.launch(), "it started:\n{}", server.log());
        server.log()
    }

    fn start_in(environment: &[(&'static str, PathBuf)], executable: &Path, arguments: &[&str]) -> Self {
        // Another process may take the port between our look and the server's.
        for _ in 0..5 {
            let mut server = Self::new(environment, executable, arguments);
            if server.launch() {
                return server;
            }
            assert!(server.log().contains("in use"), "the server did not start:\n{}", server.log());
        }
        panic!("no free port");
    }

    fn new(environment: &[(&'static str, PathBuf)], executable: &Path, arguments: &[&str]) -> Self {
        Self {
            port: free_port(),
            folder: new_folder(),
            executable: executable.to_path_buf(),
            arguments: arguments.iter().map(ToString::to_string).collect(),
            environment: environment.to_vec(),
            process: None,
        }
    }

    /// Starts the process again, on the same port and in the same folder.
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
            // One that writes a file for its server would go on, on Redis 6.2 for seconds and with the clients'
            // connections open.
            if !children.trim().is_empty() {
                let kill = format!("kill -9 {children}");
                let _ = Command::new("sh").args(["-c", &kill]).stderr(Stdio::null()).status();
            }
        }
    }

    pub fn client(&self) -> Client {
        Client::open(format!("redis://127.0.0.1:{}/", self.port)).unwrap()
    }

    pub fn connect(&self) -> Connection {
        connect(&self.client())
    }

    pub fn connect_resp3(&self) -> Connection {
        connect(&Client::open(format!("redis://127.0.0.1:{}/?protocol=resp3", self.port)).unwrap())
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// The process that serves, for its memory and its CPU time.
    pub fn pid(&self) -> u32 {
        self.process.as_ref().unwrap().id()
    }

    fn launch(&mut self) -> bool {
        let port = self.port.to_string();
        let folder = self.folder.to_str().unwrap();
        let log = fs::File::options().append(true).create(true).open(self.folder.join("log")).unwrap();
        let mut command = Command::new(&self.executable);
        command
            .args(["--port", &port, "--bind", "127.0.0.1", "--dir", folder, "--save", ""])
            .args(&self.arguments)
            // No server starts in a locale that the machine has not got.
            .env("LC_ALL", "C")
            .envs(self.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        let process = command.spawn().unwrap_or_else(|error| match error.kind() {
            ErrorKind::NotFound => panic!("{} is not installed: see scripts/test", self.executable.display()),
            _ => panic!("{}: {error}", self.executable.display()),
        });
        self.process = Some(process);
        // Loading a large file takes a while, and so does a machine with two cores and many servers.
        eventually(Duration::from_secs(60), || {
            let gone = self.process.as_mut().unwrap().try_wait().unwrap().is_some();
            let answers = || -> RedisResult<String> { run(&mut self.client().get_connection()?, "PING") };
            (gone || answers().is_ok()).then_some(!gone)
        })
        .unwrap_or(false)
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

fn connect(client: &Client) -> Connection {
    let connection = client.get_connection().unwrap();
    connection.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    connection
}

/// Every limiter of the database by its key: its text, and when it expires in ms since the epoch (-1 for never).
pub type Snapshot = BTreeMap<Vec<u8>, (Vec<u8>, i64)>;

/// Reads every string in the database.
pub fn snapshot(connection: &mut impl redis::ConnectionLike) -> Snapshot {
    // Redis 6.2 has no PEXPIRETIME: there, time plus time to live, if the clock has not moved on between the two.
    let rows: Vec<(Vec<u8>, Vec<u8>, i64)> = redis::Script::new(
        "local function now()
             local time = redis.call('TIME')
             return time[1] * 1000 + math.floor(time[2] / 1000)
         end
         local function expires_at(key)
             local answer = redis.pcall('PEXPIRETIME', key)
             if type(answer) == 'number' then return answer end
             while true do
                 local before, ttl = now(), redis.call('PTTL', key)
                 if ttl < 0 then return ttl end
                 if now() == before then return before + ttl end
             end
         end
         local rows = {}
         for _, key in ipairs(redis.call('KEYS', '*')) do
             if redis.call('TYPE', key).ok == 'string' then
                 local text = redis.call('GET', key)
                 if text then table.insert(rows, {key, text, expires_at(key)}) end
             end
         end
         return rows",
    )
    .invoke(connection)
    .unwrap();
    rows.into_iter().map(|(key, text, expires_at)| (key, (text, expires_at))).collect()
}

/// One field of `INFO`.
pub fn info(connection: &mut impl redis::ConnectionLike, field: &str) -> String {
    let info: String = run(connection, "INFO all").unwrap();
    info.lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
        .unwrap_or_else(|| panic!("no {field} in {info}"))
        .to_string()
}

/// Waits until it holds, for as long as a slow machine may need.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    eventually(Duration::from_secs(30), || holds().then_some(())).unwrap_or_else(|| panic!("never happened: {what}"));
}

/// Asks until there is an answer or the time is over.
pub fn eventually<T>(limit: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return Some(answer);
        }
        if start.elapsed() > limit {
            return None;
        }
        sleep(Duration::from_millis(5));
    }
}

/// The executable of the server under test.
pub fn executable() -> PathBuf {
    std::env::var_os("SERVER").map_or_else(|| "redis-server".into(), PathBuf::from)
}

/// Whether the server under test is of this kind and version: `is_server("Redis", "6.2")`.
fn is_server(kind: &str, version: &str) -> bool {
    let output = Command::new(executable()).arg("--version").output();
    let output = String::from_utf8(output.unwrap().stdout).unwrap();
    output.contains(&format!("{kind} server v={version}."))
}

/// The oldest, and the only one that lacks what a test then names.
pub fn is_redis_6_2() -> bool {
    is_server("Redis", "6.2")
}

/// Redis 6.2 and 7.0 leave the commands of modules out of every ACL category.
pub fn has_acl_categories() -> bool {
    !is_redis_6_2() && !is_server("Redis", "7.0")
}

/// The setting with which clients may load and unload modules. Redis 6.2 has none: there they always may.
pub fn module_command() -> &'static [&'static str] {
    if is_redis_6_2() { &[] } else { &["--enable-module-command", "yes"] }
}

/// The setting with which clients may call DEBUG. Redis 6.2 has none: there they always may.
pub fn debug_command() -> &'static [&'static str] {
    if is_redis_6_2() { &[] } else { &["--enable-debug-command", "yes"] }
}

/// The module as users get it, built when the first test asks for it, so that it is never an old one.
pub fn module() -> PathBuf {
    static MODULE: OnceLock<PathBuf> = OnceLock::new();
    MODULE
        .get_or_init(|| {
            let root = Path::new(env!("CARGO_MANIFEST_DIR"));
            let build = Command::new(env!("CARGO")).args(["build", "--release", "--quiet"]).current_dir(root).status();
            assert!(build.unwrap().success(), "the release build failed");
            let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
            target.join("release/libredis_cell.so")
        })
        .clone()
}

/// A file of C beside this one, compiled to a shared library.
fn compiled(name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/support/{name}.c"));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let library = folder.join(format!("{name}.so"));
    // Moved into place: another run may be using the old one at this moment.
    let new = folder.join(format!("{name}-{}.so", std::process::id()));
    let status = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"])
        .args([&new, &source])
        .status()
        .expect("cc, a C compiler, is not installed: see scripts/test");
    assert!(status.success(), "{name}.c does not compile");
    fs::rename(&new, &library).unwrap();
    library
}

/// A port that is free, as is the one 10,000 above it, which a cluster node takes as well.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Test runs side by side start in different places.
    let first = u16::try_from(std::process::id() % 800).unwrap() * 10;
    loop {
        let port = 11_000 + (first + NEXT.fetch_add(1, Ordering::Relaxed)) % 9_000;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() && TcpListener::bind(("127.0.0.1", port + 10_000)).is_ok() {
            return port;
        }
    }
}

fn new_folder() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Nanoseconds since the epoch, by this machine's clock.
pub fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos().try_into().unwrap()
}
