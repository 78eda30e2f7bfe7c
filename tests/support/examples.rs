//! The examples of docs/clients as programs, in each version of their libraries that this machine has.

use std::env;
use std::fmt::Debug;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Barrier, OnceLock};
use std::thread::scope;
use std::time::Duration;

use tempfile::{NamedTempFile, TempDir};

use super::needs::{found, leave_out, left_out};
use super::pages::{ROOT, blocks};
use super::programs::{output, path};
use super::{Process, eventually, free_port, new_folder};

/// The examples' timeout in tests: on a busy machine, a server may take longer than their own tenth of a second.
pub const TIMEOUT: Duration = Duration::from_secs(2);

/// The longest time that an example may take to start, to answer while its server is gone, and to find the server again.
pub const BOUND: Duration = Duration::from_secs(20);

/// A program, run in docs/clients or in a folder of its own.
#[derive(Clone, Debug)]
pub struct Example {
    program: PathBuf,
    /// The arguments; PORT stands for the port to serve HTTP on.
    arguments: Vec<String>,
    environment: Vec<(&'static str, String)>,
    /// The folder that the program runs in, from which Python also imports.
    folder: PathBuf,
    /// The folder of Python's packages that were fetched; empty for Debian's.
    packages: String,
}

impl Example {
    pub fn new(program: impl Into<PathBuf>, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(ToString::to_string).collect();
        let environment = vec![("TIMEOUT", TIMEOUT.as_secs().to_string())];
        Self { program: program.into(), arguments, environment, folder: path(""), packages: String::new() }
    }

    pub fn with(&self, name: &'static str, value: &str) -> Self {
        let mut with = self.clone();
        with.environment.push((name, value.to_string()));
        with
    }

    pub fn with_arguments(&self, arguments: &[&str]) -> Self {
        let mut with = self.clone();
        with.arguments.extend(arguments.iter().map(ToString::to_string));
        with
    }

    pub fn command(&self, redis: u16) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).current_dir(&self.folder).envs(self.environment.clone());
        command.env("PYTHONPATH", format!("{}:{}", self.packages, self.folder.display()));
        command.env("PYTHONDONTWRITEBYTECODE", "1").env("REDIS_PORT", redis.to_string());
        command
    }

    /// Returns what the program prints; fails unless it succeeds within 20 minutes.
    pub fn output(&self, redis: u16) -> String {
        self.output_and_errors(redis).0
    }

    /// Returns what the program prints, and its errors; fails unless it succeeds within 20 minutes.
    pub fn output_and_errors(&self, redis: u16) -> (String, String) {
        let mut command = self.command(redis);
        let mut process = Process(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
        let status = eventually(Duration::from_secs(1200), || process.0.try_wait().unwrap());
        if status.is_none() {
            process.0.kill().unwrap();
        }
        let errors = read(process.0.stderr.take().unwrap());
        assert!(status.is_some_and(|status| status.success()), "{self:?}: {status:?}\n{errors}");
        (read(process.0.stdout.take().unwrap()), errors)
    }
}

fn read(mut from: impl Read) -> String {
    let mut text = String::new();
    from.read_to_string(&mut text).unwrap();
    text
}

/// Returns an example with the newest version of its library, and `--everywhere` with Debian's as well.
fn versions(debian: Option<Example>, newest: Option<Example>) -> impl Iterator<Item = Example> {
    let both = env::var_os("EVERYWHERE").is_some() || newest.is_none();
    newest.into_iter().chain(debian.filter(|_| both))
}

/// Returns Flask's example on a server that queues 1,000 connections at once. It usually queues 128, and the others
/// would connect a second later.
pub fn flask() -> impl Iterator<Item = Example> {
    let flask = [&*of_test("clients/long_queue.py"), "--app", "flask_app", "run", "--port", "PORT"];
    python("python3-flask", "flask", &flask)
}

pub fn fastapi() -> impl Iterator<Item = Example> {
    let uvicorn = ["-m", "uvicorn", "--no-proxy-headers", "fastapi_app:app", "--port", "PORT"];
    python("python3-fastapi and python3-uvicorn", "fastapi, uvicorn", &uvicorn)
}

/// Returns a site with the throttles for Django REST framework.
pub fn django() -> impl Iterator<Item = Example> {
    python("python3-djangorestframework", "rest_framework", &[&of_test("clients/django_site.py")])
}

/// Returns the application of docs/protect.md, in a folder that the page's own lines make.
pub fn protect() -> impl Iterator<Item = Example> {
    let arguments = ["-m", "uvicorn", "--no-proxy-headers", "protect:app", "--port", "PORT"];
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let block = blocks(|block| block.place.starts_with("docs/protect.md") && block.language == "sh").remove(0);
        let lines: Vec<_> = block.text.lines().collect();
        assert!(lines[2].starts_with("cd /tmp/protect && python3 -m uvicorn "), "{lines:?}");
        let folder = new_folder();
        let make = lines[..2].join("\n").replace("/tmp/protect", folder.path().to_str().unwrap());
        output(Command::new("bash").args(["-ec", &make]).current_dir(ROOT));
        folder
    });
    let packages = "python3-fastapi, python3-uvicorn and python3-prometheus-client";
    let examples = python(packages, "fastapi, uvicorn, prometheus_client", &arguments);
    examples.map(|example| Example { folder: folder.path().to_path_buf(), ..example })
}

/// Returns the Express example, once with node-redis and once with ioredis.
pub fn express() -> impl Iterator<Item = Example> {
    let express = npm_node("express_app.js");
    express.into_iter().flat_map(|express| [express.clone(), express.with("CLIENT", "./ioredis.js")])
}

/// Returns the configuration of nginx, in a folder of its own.
pub fn nginx() -> Option<Example> {
    let lua =
        "test -e /usr/lib/nginx/modules/ngx_http_lua_module.so -a -e /usr/share/lua/5.1/nginx/redis.lua && nginx -v";
    installed("nginx-light, libnginx-mod-http-lua and lua-nginx-redis", Command::new("sh").args(["-c", lua]))
        .then(|| Example::new("sh", &[&of_test("clients/nginx.sh"), &format!("{}-PORT", target("nginx").display())]))
}

/// Returns the smallest calls, each of whose files lies in this folder: PHP with the extension phpredis, and without any
/// extension with Predis; Ruby, C and Go.
pub fn smallest(folder: &Path) -> Vec<Example> {
    let [php_redis, ruby, c, go] =
        ["php_redis.php", "redis_rb.rb", "hiredis.c", "redigo.go"].map(|file| folder.join(file).display().to_string());
    let php = |package, check: &[&str], options: &[&str]| {
        let uses = installed(&format!("php-cli and {package}"), Command::new("php").args(check));
        let arguments = [options, &["-d", "display_errors=stderr", &php_redis]].concat();
        uses.then(|| Example::new("php", &arguments))
    };
    let phpredis = php("php-redis", &["-r", "new Redis();"], &[]);
    let predis = php("php-predis", &["-n", "-r", "require 'Predis/Autoloader.php';"], &["-n"]);
    let redis_rb = installed("ruby-redis", Command::new("ruby").args(["-e", "require 'redis'"]))
        .then(|| Example::new("ruby", &[&ruby]));
    [phpredis, predis, redis_rb, hiredis(&c), redigo(&go)].into_iter().flatten().collect()
}

fn hiredis(source: &str) -> Option<Example> {
    let header = ["-E", "-include", "hiredis/hiredis.h", "-x", "c", "/dev/null"];
    installed("libhiredis-dev", Command::new("cc").args(header)).then(|| {
        built(source, |program| {
            let mut compile = Command::new("cc");
            compile.args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"]).arg(program).args([source, "-lhiredis"]);
            compile
        })
    })
}

/// scripts/test does not install Go, which is large.
fn redigo(source: &str) -> Option<Example> {
    let go = || {
        let mut go = Command::new("go");
        go.env("GO111MODULE", "off").env("GOPATH", "/usr/share/gocode").env("GOCACHE", target("go"));
        go
    };
    if !found(go().args(["list", "github.com/gomodule/redigo/redis"])) {
        leave_out("golang-go and golang-github-gomodule-redigo-dev are not installed");
        return None;
    }
    Some(built(source, |program| {
        let mut build = go();
        build.args(["build", "-o"]).arg(program).arg(source);
        build
    }))
}

/// Builds a program of this source once.
fn built(source: &str, build: impl FnOnce(&Path) -> Command) -> Example {
    let program = target(&format!("smallest-{:x}", hash(source)));
    if !program.exists() {
        // Build elsewhere, then move: another run of the tests may be building the same.
        let folder = new_folder();
        let new = folder.path().join("program");
        assert!(build(&new).status().unwrap().success(), "{source}");
        fs::rename(new, &program).unwrap();
    }
    Example::new(program, &[])
}

pub fn debian_python(example: &str) -> Option<Example> {
    debian_python_with("python3-redis", "redis", &[example])
}

/// Returns a program for Debian's own Python, the only one that sees Debian's packages.
fn debian_python_with(packages: &str, modules: &str, arguments: &[&str]) -> Option<Example> {
    let python = "/usr/bin/python3";
    let import = format!("import {modules}");
    installed(packages, Command::new(python).args(["-c", &import])).then(|| Example::new(python, arguments))
}

/// Returns a program with the newest packages, and `--everywhere` with Debian's as well.
pub fn python(packages: &str, modules: &str, arguments: &[&str]) -> impl Iterator<Item = Example> + use<> {
    versions(debian_python_with(packages, modules, arguments), pypi_python(arguments))
}

/// Returns a program of the tests' own, which imports the examples, with each version of redis-py.
pub fn python_program(file: &str) -> impl Iterator<Item = Example> + use<> {
    python("python3-redis", "redis", &[&of_test(file)])
}

pub fn pypi_python(arguments: &[&str]) -> Option<Example> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        fetched("PyPI", "clients/requirements.txt", |folder| {
            let mut pip = Command::new("python3");
            pip.args(["-m", "pip", "install", "--quiet", "--no-cache-dir", "--retries", "1", "--target"]).arg(folder);
            pip.arg("--requirement").arg(of_test("clients/requirements.txt"));
            pip
        })
    });
    let packages = folder.as_ref()?.to_str().unwrap().to_string();
    Some(Example { packages, ..Example::new("python3", arguments) })
}

/// Returns the example with Debian's packages. `NODE_PATH` tells their folder to a Node.js that is not Debian's.
pub fn debian_node(example: &str) -> Option<Example> {
    let folder = "/usr/share/nodejs";
    installed("nodejs and node-redis", Command::new("node").args(["-e", "require('redis')"]).env("NODE_PATH", folder))
        .then(|| Example::new("node", &[example]).with("NODE_PATH", folder))
}

/// Returns the example with the packages of npm that package-lock.json names.
pub fn npm_node(example: &str) -> Option<Example> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        fetched("npm", "clients/package-lock.json", |folder| {
            for file in ["package.json", "package-lock.json"] {
                fs::copy(of_test(&format!("clients/{file}")), folder.join(file)).unwrap();
            }
            let mut npm = Command::new("npm");
            npm.args(["ci", "--silent", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1"]);
            npm.arg("--cache").arg(folder.join("cache")).current_dir(folder);
            npm
        })
    });
    let folder = folder.as_ref()?.join("node_modules");
    Some(Example::new("node", &[example]).with("NODE_PATH", folder.to_str().unwrap()))
}

/// Returns the folder in target/ with the packages that this file of the tests lists. They are fetched once.
fn fetched(registry: &str, list: &str, fetch: impl Fn(&Path) -> Command) -> Option<PathBuf> {
    let folder = target(&format!("clients-{:x}", hash(&of_test(list))));
    if folder.exists() {
        return Some(folder);
    }
    // Fetch elsewhere, then move: another run may be fetching the same at this moment.
    let new = new_folder();
    let there = fetch(new.path()).output().is_ok_and(|output| output.status.success());
    if there {
        let _ = fs::rename(&new, &folder);
    } else {
        left_out(&format!("the packages of tests/once/{list} on {registry} not found"));
    }
    there.then_some(folder)
}

/// Returns a hash of the file's text.
fn hash(file: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    fs::read(file).unwrap().hash(&mut hasher);
    hasher.finish()
}

/// Makes this many calls, each in its own thread: all prepare, and then all call. Returns their statuses.
pub fn at_once<T>(calls: usize, prepare: impl Fn() -> T + Sync, call: impl Fn(T) -> u16 + Sync) -> Vec<u16> {
    let barrier = Barrier::new(calls);
    let thread = || {
        let prepared = prepare();
        barrier.wait();
        call(prepared)
    };
    scope(|scope| {
        let threads: Vec<_> = (0..calls).map(|_| scope.spawn(thread)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Returns whether the check succeeds. If it fails, the test is left out, with a line that says so.
pub fn installed(what: &str, check: &mut Command) -> bool {
    found(check) || left_out(&format!("{what} not found"))
}

/// Returns the path of a program or a list in tests/once.
pub fn of_test(file: &str) -> String {
    [env!("CARGO_MANIFEST_DIR"), "tests/once", file].join("/")
}

/// Returns the path in target/ of a file or folder that tests make.
fn target(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
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
        let mut example = example.clone();
        for argument in &mut example.arguments {
            *argument = argument.replace("PORT", &port.to_string());
        }
        let log = NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let file = log.reopen().unwrap();
        let mut command = example.command(redis);
        command.env("HTTP_PORT", port.to_string()).stdout(file.try_clone().unwrap()).stderr(file).process_group(0);
        let mut process = Process(command.spawn().unwrap());
        let started = eventually(Duration::from_secs(60), || {
            let ended = process.0.try_wait().unwrap();
            assert_eq!(ended, None, "{example:?}: {}", fs::read_to_string(&log).unwrap());
            TcpStream::connect(("127.0.0.1", port)).ok()
        });
        assert!(started.is_some(), "{example:?} serves no HTTP");
        Self { process, port, log }
    }

    /// Sends a request with these headers. Returns the status, the headers and the body.
    pub fn get(&self, target: &str, headers: &str) -> (u16, Vec<String>, String) {
        self.ask(self.connect(), &format!("GET {target} HTTP/1.0\r\n{headers}\r\n"))
    }

    /// Sends a request without headers, such as `POST /login`. Returns the same.
    pub fn send(&self, request: &str) -> (u16, Vec<String>, String) {
        self.ask(self.connect(), &format!("{request} HTTP/1.0\r\nContent-Length: 0\r\n\r\n"))
    }

    /// Sends a complete request. Returns the status alone.
    pub fn ask_once(&self, request: &str) -> u16 {
        self.ask(self.connect(), request).0
    }

    /// Sends the same complete request on many connections at once. Returns the statuses.
    pub fn at_once(&self, connections: usize, request: &str) -> Vec<u16> {
        at_once(connections, || self.connect(), |stream| self.ask(stream, request).0)
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        stream
    }

    /// Sends a complete request on a connection of its own. Returns the status, the headers and the body.
    pub fn ask(&self, mut stream: TcpStream, request: &str) -> (u16, Vec<String>, String) {
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
        // PHP's worker processes survive the process that started them.
        let kill = format!("kill -KILL -{}", self.process.0.id());
        let _ = Command::new("sh").args(["-c", &kill]).stderr(Stdio::null()).status();
    }
}
