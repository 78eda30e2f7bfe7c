//! What the server under test is, and what it lacks.

use std::io::Write;
use std::process::Command;
use std::sync::OnceLock;

use super::executable;

/// Its kind and its version: `redis-7.0.15`.
fn server() -> &'static str {
    static SERVER: OnceLock<String> = OnceLock::new();
    SERVER.get_or_init(|| {
        let output = Command::new(executable()).arg("--version").output();
        let output = output.unwrap_or_else(|error| panic!("{}: {error}", executable().display()));
        name(&String::from_utf8(output.stdout).unwrap())
    })
}

/// By what a server says of its version: "Redis server v=7.0.15 sha=00000000:0 malloc=...". Valkey 7.2 does not say
/// that it is one: "Server v=7.2.7 ...".
fn name(version: &str) -> String {
    let version = version.to_lowercase();
    let (kind, rest) = version.split_once("server v=").unwrap_or_else(|| panic!("no server's version: {version}"));
    let kind = if kind.is_empty() { "valkey" } else { kind.trim() };
    format!("{kind}-{}", rest.split(' ').next().unwrap())
}

#[test]
fn a_server_is_known_by_what_it_says_of_its_version() {
    for (version, expected) in [
        ("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.2.1 bits=64", "redis-7.0.15"),
        ("Valkey server v=8.1.1 sha=00000000:0", "valkey-8.1.1"),
        ("Server v=7.2.7 sha=00000000:0", "valkey-7.2.7"),
    ] {
        assert_eq!(name(version), expected);
    }
}

/// Leaves a test out, with a line that says so, where the server or this machine lacks what it names. `scripts/test`
/// sets `REQUIRE_ALL`: then such a test fails instead.
macro_rules! needs {
    ($need:expr) => {
        if !$crate::support::needs::has($need) {
            return;
        }
    };
}
pub(crate) use needs;

/// For tests that install, fetch or measure, or take minutes: only scripts/test runs them.
pub const SCRIPTS_TEST: &str = "scripts/test";

/// What a program needs of this machine, by Debian's name for it, and how to find out.
const PROGRAMS: [(&str, &[&str]); 3] = [
    ("python3-redis", &["/usr/bin/python3", "-c", "import redis"]),
    ("node-redis", &["node", "-e", "require('redis')"]),
    ("redis-tools", &["redis-cli", "--version"]),
];

/// Whether there is what a test needs: one of `PROGRAMS`, `SCRIPTS_TEST`, or a last column of needs.txt.
pub fn has(need: &str) -> bool {
    let required = std::env::var_os("REQUIRE_ALL").is_some();
    let lacking = if need == SCRIPTS_TEST {
        (!required).then(|| "scripts/test runs it".to_string())
    } else if let Some((_, check)) = PROGRAMS.iter().find(|(program, _)| *program == need) {
        let mut check_command = Command::new(check[0]);
        let check = check_command.args(&check[1..]).env("NODE_PATH", "/usr/share/nodejs").output();
        let found = check.is_ok_and(|output| output.status.success());
        (!found).then(|| format!("{need} is not installed"))
    } else {
        let lines = include_str!("../needs.txt").lines();
        let mut servers = lines.filter(|line| line.ends_with(need)).map(|line| line.split_whitespace().nth(1).unwrap());
        let lacking = servers.next().unwrap_or_else(|| panic!("{need} is not in tests/needs.txt"));
        let lacks = lacking.split(',').any(|lacking| server().starts_with(lacking));
        lacks.then(|| format!("it needs {need}, and this server is {}", server()))
    };
    lacking.is_none_or(|lacking| left_out(&lacking))
}

/// Says why the test that runs is left out, or fails it where `scripts/test` has to have seen to that. Always false.
pub fn left_out(why: &str) -> bool {
    assert!(std::env::var_os("REQUIRE_ALL").is_none(), "{why}: scripts/test installs it, or leaves the test out");
    let test = std::thread::current().name().unwrap_or_default().to_string();
    // Not by println, whose lines cargo does not show of a test that passes.
    let _ = writeln!(std::io::stderr(), "left out: {test}: {why}");
    false
}

/// The oldest, and the only one that lacks what a test then names.
pub fn is_redis_6_2() -> bool {
    server().starts_with("redis-6.2")
}

/// Redis 6.2 and 7.0 leave the commands of modules out of every ACL category.
pub fn has_acl_categories() -> bool {
    !is_redis_6_2() && !server().starts_with("redis-7.0")
}

/// The setting with which clients may load and unload modules. Redis 6.2 has none: there they always may.
pub fn module_command() -> &'static [&'static str] {
    if is_redis_6_2() { &[] } else { &["--enable-module-command", "yes"] }
}

/// The setting with which clients may call DEBUG. Redis 6.2 has none: there they always may.
pub fn debug_command() -> &'static [&'static str] {
    if is_redis_6_2() { &[] } else { &["--enable-debug-command", "yes"] }
}

/// The setting with which a replica gets its snapshot over a connection of its own, where the server has one.
pub fn snapshot_channel() -> &'static [&'static str] {
    match server().split('.').next().unwrap() {
        "redis-8" => &["--repl-rdb-channel", "yes"],
        "valkey-8" | "valkey-9" => &["--dual-channel-replication-enabled", "yes"],
        _ => &[],
    }
}
