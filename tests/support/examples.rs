//! The examples of docs/clients as programs, in each version of their libraries that this machine has.

use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::thread::scope;
use std::time::Duration;

use tempfile::NamedTempFile;

use super::needs::{fail_or_leave_out, is_installed, leave_out};
use super::pages::ROOT;
use super::programs::{output, path};
use super::{PATIENCE, Process, free_port, wait_until};

/// The examples' timeout in tests: on a busy machine, a server may take longer than their own tenth of a second.
pub const TIMEOUT: Duration = Duration::from_secs(2);

/// The libraries of a program.
pub enum Libraries {
    /// Packages of Debian, and a command that succeeds if they are installed.
    Debian(&'static str, &'static str),
    /// The newest packages of npm, which package-lock.json names.
    Npm,
    /// Modules of Python: the newest, which requirements.txt names, and `--everywhere` Debian's as well.
    Python(&'static str),
}
use Libraries::{Debian, Npm, Python};

pub const DEBIAN_NODE: Libraries = Debian("nodejs and node-redis", "node -e 'require(\"redis\")'");

/// The programs, each with its libraries and the words that start it in docs/clients. Programs of the tests call or
/// serve some of the examples.
const PROGRAMS: [(&str, Libraries, &str); 14] = [
    ("calls", Python("redis"), "../../tests/once/clients/calls.py redis_py"),
    ("calls", Python("redis"), "../../tests/once/clients/calls.py redis_asyncio"),
    ("calls", DEBIAN_NODE, "node ../../tests/once/clients/calls.js"),
    ("flask", Python("flask"), FLASK),
    ("fastapi", Python("fastapi, uvicorn"), "-m uvicorn --no-proxy-headers fastapi_app:app --port $HTTP_PORT"),
    ("django", Python("rest_framework"), "../../tests/once/clients/django_site.py"),
    ("express", Npm, "node express_app.js"),
    ("express", Npm, "env CLIENT=./ioredis.js node express_app.js"),
    ("nginx", NGINX, "sh ../../tests/once/clients/nginx.sh \"$TARGET/nginx-$HTTP_PORT\""),
    ("smallest", Debian("php-redis", "php -r 'new Redis();'"), "php -d display_errors=stderr php_redis.php"),
    ("smallest", Debian("php-predis", "ls /usr/share/php/Predis"), "php -n -d display_errors=stderr php_redis.php"),
    ("smallest", Debian("ruby-redis", "ruby -e 'require \"redis\"'"), "ruby redis_rb.rb"),
    ("smallest", Debian("libhiredis-dev", "ls /usr/include/hiredis"), HIREDIS),
    ("smallest", Debian(GO, "go list github.com/gomodule/redigo/redis"), "go run redigo.go"),
];

/// Flask's own server, whose queue has 128 places: a connection that waits for one for a minute is reset.
const FLASK: &str = "-c \"import flask.cli, sys, werkzeug.serving as serving
serving.LISTEN_QUEUE = serving.BaseWSGIServer.request_queue_size = 1024
sys.argv = 'flask --app flask_app run --port $HTTP_PORT'.split()
flask.cli.main()\"";
const NGINX: Libraries = Debian(
    "nginx-light, libnginx-mod-http-lua and lua-nginx-redis",
    "ls /usr/lib/nginx/modules/ngx_http_lua_module.so /usr/share/lua/5.1/nginx/redis.lua",
);
const HIREDIS: &str = "sh -ec 'program=$(mktemp)
    trap \"rm $program\" EXIT
    cc -O1 -Wall -Wextra -Werror -o $program hiredis.c -lhiredis
    $program'";
/// scripts/test does not install Go, which is large.
const GO: &str = "golang-go and golang-github-gomodule-redigo-dev";

/// Returns the programs of this name, each in each version of its libraries.
pub fn examples(name: &str) -> Vec<Example> {
    let programs = PROGRAMS.iter().filter(|(group, ..)| *group == name);
    programs.flat_map(|(_, libraries, words)| libraries.run(words)).collect()
}

impl Libraries {
    /// Returns the program that these words start, once for each version of the libraries.
    pub fn run(&self, words: &str) -> Vec<Example> {
        let newest = match self {
            Debian(packages, check) => return debian(packages, check, words),
            Npm => fetched("package-lock.json", NPM)
                .map(|packages| Example::new(words).with("NODE_PATH", &format!("{packages}/node_modules"))),
            Python(_) => fetched("requirements.txt", PIP).map(|packages| {
                Example::new(&format!("python3 -B {words}")).with("PYTHONPATH", &format!("{packages}:."))
            }),
        };
        let mut examples = Vec::from_iter(newest);
        if let Python(modules) = self
            && (examples.is_empty() || env::var_os("EVERYWHERE").is_some())
        {
            // Debian's own Python is the only one that sees Debian's packages.
            let check = format!("/usr/bin/python3 -c 'import {modules}'");
            examples.extend(debian(modules, &check, &format!("/usr/bin/python3 -B {words}")));
        }
        examples
    }
}

fn debian(packages: &str, check: &str, words: &str) -> Vec<Example> {
    let leave = if packages == GO { leave_out } else { fail_or_leave_out };
    let found = is_installed(&mut Example::new(check).command(0)) || leave(&format!("{packages} not found"));
    Vec::from_iter(found.then(|| Example::new(words)))
}

const NPM: &str = "cp package.json package-lock.json $new; cd $new
    npm ci --silent --ignore-scripts --no-audit --no-fund --fetch-retries=1 --cache cache";
const PIP: &str =
    "python3 -m pip install --quiet --no-cache-dir --retries 1 --target $new --requirement requirements.txt";

/// Returns the folder in target/ with the packages that this file of the tests lists. They are fetched once.
fn fetched(list: &str, fetch: &str) -> Option<String> {
    let mut hasher = DefaultHasher::new();
    fs::read(of_test(list)).unwrap().hash(&mut hasher);
    let folder = format!("{TARGET}/clients-{:x}", hasher.finish());
    // Fetch elsewhere, then move: another run may be fetching the same at this moment.
    let script = format!("test -e $0 || {{ new=$(mktemp -d $0.XXXXXX)\n{fetch}\nmv -T $new $0 || test -e $0; }}");
    let there = is_installed(Command::new("sh").args(["-ec", &script, &folder]).current_dir(of_test("")));
    (there || fail_or_leave_out(&format!("the packages of tests/once/clients/{list} not found"))).then_some(folder)
}

/// The folder in target/ of files that tests make.
const TARGET: &str = env!("CARGO_TARGET_TMPDIR");

/// Returns the path of a file in tests/once/clients.
pub fn of_test(file: &str) -> String {
    [ROOT, "tests/once/clients", file].join("/")
}

/// A program, run in docs/clients or in a folder of its own.
#[derive(Clone, Debug)]
pub struct Example {
    /// A command for the shell.
    words: String,
    environment: Vec<(&'static str, String)>,
    /// The folder that the program runs in, from which Python also imports.
    pub folder: PathBuf,
}

impl Example {
    fn new(words: &str) -> Self {
        let environment = [
            ("TARGET", TARGET),
            ("PYTHONPATH", "."),
            ("NODE_PATH", "/usr/share/nodejs"),
            ("GO111MODULE", "off"),
            ("GOPATH", "/usr/share/gocode"),
            ("GOCACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/go")),
        ];
        let environment = environment.map(|(name, value)| (name, value.to_string())).to_vec();
        let new = Self { words: format!("exec {words}"), environment, folder: path("clients") };
        new.with("TIMEOUT", &TIMEOUT.as_secs().to_string())
    }

    pub fn with(&self, name: &'static str, value: &str) -> Self {
        let mut with = self.clone();
        with.environment.push((name, value.to_string()));
        with
    }

    pub fn command(&self, redis: u16) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", &self.words]).current_dir(&self.folder).envs(self.environment.clone());
        command.env("REDIS_PORT", redis.to_string());
        command
    }

    /// Returns what the program prints; fails unless it succeeds.
    pub fn output(&self, redis: u16) -> String {
        output(&mut self.command(redis))
    }
}

/// An HTTP server, on a free port, gone when dropped.
pub struct Http {
    /// The leader of the server's process group.
    process: Process,
    pub port: u16,
    /// The server's output and its errors.
    log: NamedTempFile,
}

impl Http {
    pub fn start(example: &Example, redis: u16) -> Self {
        let port = free_port();
        let log = NamedTempFile::new_in(TARGET).unwrap();
        let file = log.reopen().unwrap();
        let mut command = example.command(redis);
        command.env("HTTP_PORT", port.to_string()).stdout(file.try_clone().unwrap()).stderr(file).process_group(0);
        let mut process = Process(command.spawn().unwrap());
        wait_until(&format!("{example:?} serves HTTP"), || {
            let ended = process.0.try_wait().unwrap();
            assert_eq!(ended, None, "{example:?}: {}", fs::read_to_string(&log).unwrap());
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        Self { process, port, log }
    }

    /// Sends a request with these headers. Returns the status, the headers and the body.
    pub fn get(&self, target: &str, headers: &str) -> (u16, Vec<String>, String) {
        self.ask(self.connect(), &format!("GET {target} HTTP/1.0\r\n{headers}\r\n"))
    }

    /// Sends a complete request. Returns the status alone.
    pub fn ask_once(&self, request: &str) -> u16 {
        self.ask(self.connect(), request).0
    }

    /// Sends the same complete request on many connections at once. Returns the statuses.
    pub fn at_once(&self, connections: usize, request: &str) -> Vec<u16> {
        let barrier = Barrier::new(connections);
        let ask = || {
            let stream = self.connect();
            barrier.wait();
            self.ask(stream, request).0
        };
        scope(|scope| {
            let threads: Vec<_> = (0..connections).map(|_| scope.spawn(ask)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    fn ask(&self, mut stream: TcpStream, request: &str) -> (u16, Vec<String>, String) {
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        let end = stream.read_to_string(&mut answer);
        let Some((head, body)) = answer.split_once("\r\n\r\n") else {
            panic!("{end:?}, {answer:?}: {}", fs::read_to_string(&self.log).unwrap());
        };
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap();
        (status.parse().unwrap(), lines.map(ToString::to_string).collect(), body.to_string())
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        // The workers of nginx survive the process that started them.
        let kill = format!("kill -KILL -{}", self.process.0.id());
        let _ = Command::new("sh").args(["-c", &kill]).stderr(Stdio::null()).status();
    }
}
