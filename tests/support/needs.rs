//! The kind and version of the server under test, the features that it lacks, and the programs that this machine lacks.

use std::io::Write;
use std::ops::Range;
use std::process::Command;
use std::sync::LazyLock;

use super::executable;

/// Leaves a test out, with a line that says so, if the server or this machine lacks what the test names. `scripts/test`
/// gathers these lines. Where it has installed all packages, it sets `REQUIRE_ALL`, with which a test fails if this
/// machine lacks what it names.
macro_rules! needs {
    ($need:expr) => {
        if !$crate::support::needs::has($need) {
            return;
        }
    };
}
pub(crate) use needs;

type Version = (u32, u32);
type Versions = Range<Version>;

const NEWEST: Version = (u32::MAX, 0);
const ALL: Versions = (0, 0)..NEWEST;
const NONE: Versions = NEWEST..NEWEST;

const fn from(major: u32, minor: u32) -> Versions {
    (major, minor)..NEWEST
}

/// A thing that some servers, machines or runs lack, and a test needs.
pub enum Need {
    /// A feature of the server, and the versions of Redis and of Valkey that have it.
    Feature(&'static str, Versions, Versions),
    /// A package of Debian, and a program whose run with these arguments succeeds if it is installed.
    Package(&'static str, &'static str, &'static [&'static str]),
    /// A run in which this variable is set, or is not; and why the test is left out of the others.
    Run(&'static str, bool, &'static str),
}
use Need::{Feature, Package, Run};

pub const COMMAND_DOCS: Need = Feature("COMMAND DOCS, Redis 7", from(7, 0), ALL);
pub const FUNCTIONS: Need = Feature("functions, Redis 7", from(7, 0), ALL);
pub const INCREX: Need = Feature("INCREX with bounds, Redis 8.8", from(8, 8), NONE);
pub const KEY_PERMISSIONS: Need = Feature("key permissions, Redis 7", from(7, 0), ALL);
pub const MOVING_SLOTS: Need =
    Feature("slots that servers move by themselves, Redis 8.4 or Valkey 9", from(8, 4), from(9, 0));
pub const REDIS_7_0: Need = Feature("Redis 7.0 alone", (7, 0)..(7, 1), NONE);
pub const UNLOAD_AT_SHUTDOWN: Need = Feature("an unload at each shutdown, Valkey 9.1", NONE, from(9, 1));
pub const WRITES_IN_FORK: Need = Feature("a primary whose handlers may write when it forks, Redis 7", from(7, 0), ALL);

pub const PYTHON_REDIS: Need = Package("python3-redis", "/usr/bin/python3", &["-c", "import redis"]);
pub const REDIS_CLI: Need = Package("redis-tools", "redis-cli", &["--version"]);

/// The need of tests that install, fetch or count, or take minutes: only scripts/test runs them.
pub const SCRIPTS_TEST: Need = Run("SCRIPTS_TEST", true, "scripts/test runs it");
/// The need of tests that fetch or compile much for what seldom changes.
pub const EVERYWHERE: Need = Run("EVERYWHERE", true, "scripts/test --everywhere runs it");
/// The need of tests that run or load what is made for this machine: a server of another platform cannot.
pub const NATIVE: Need = Run("MODULE_CC", false, "needs a server of this machine's platform");
/// The need of tests that a server under an emulator or under valgrind, ten times as slow, would fail.
pub const FAST: Need = Run("SLOW_SERVER", false, "needs a server that is not slowed down");

/// Returns whether the test has what it needs; otherwise leaves the test out.
pub fn has(need: Need) -> bool {
    let is_set = |name| std::env::var_os(name).is_some();
    match need {
        Feature(name, redis, valkey) => is_in(&redis, &valkey) || leave_out(&format!("needs {name}")),
        Package(name, program, arguments) => {
            let check = Command::new(program).args(arguments).output();
            let is_installed = check.is_ok_and(|output| output.status.success());
            assert!(is_installed || !is_set("REQUIRE_ALL"), "{name} is not installed: scripts/test has to install it");
            is_installed || leave_out(&format!("{name} is not installed"))
        }
        Run(variable, set, why) => is_set(variable) == set || leave_out(why),
    }
}

/// Leaves the running test out, or a part of it, because this machine lacks what nothing installs. The line appears in
/// the table of `scripts/test`. Returns false.
pub fn leave_out(why: &str) -> bool {
    let test = std::thread::current().name().unwrap_or("a_part_of_a_test").to_string();
    // The test harness hides the println! of a test that passes, and eprintln! writes in pieces, which mix with other
    // threads' output.
    let _ = std::io::stderr().write_all(format!("left out: {test} ({why})\n").as_bytes());
    false
}

/// Whether the server under test is Valkey, and its version, by its answer to `--version`: "Redis server v=7.0.15
/// sha=00000000:0 malloc=...". Valkey 7.2 does not name itself: "Server v=7.2.7 ...".
static SERVER: LazyLock<(bool, Version)> = LazyLock::new(|| {
    let output = Command::new(executable()).arg("--version").output();
    let answer = output.map_or_else(|error| error.to_string(), |output| String::from_utf8(output.stdout).unwrap());
    let (kind, rest) = answer.split_once("erver v=").unwrap_or_else(|| {
        panic!("{:?}, which SERVER names and scripts/test installs, is no server: {answer}", executable())
    });
    let mut numbers = rest.split(['.', ' ']).map(|number| number.parse().unwrap());
    (!kind.starts_with("Redis"), (numbers.next().unwrap(), numbers.next().unwrap()))
});

fn is_in(redis: &Versions, valkey: &Versions) -> bool {
    if is_valkey() { valkey } else { redis }.contains(&SERVER.1)
}

pub fn is_valkey() -> bool {
    SERVER.0
}

/// Returns whether the server is Redis 6.2, the oldest version, which lacks features that all others have.
pub fn is_redis_6_2() -> bool {
    is_in(&((6, 2)..(6, 3)), &NONE)
}

/// Returns whether ACL categories can hold a module's commands; in Redis 6.2 and 7.0 they cannot.
pub fn has_acl_categories() -> bool {
    is_in(&from(7, 2), &ALL)
}

/// Makes a server from Redis 8.2 on end if it counts a key by another length than its value has. Older ones lack this.
pub fn assert_key_sizes(connection: &mut redis::Connection) {
    if let Err(error) = super::run::<redis::Value>(connection, "DEBUG KEYSIZES-HIST-ASSERT 1") {
        assert!(error.to_string().to_lowercase().contains("unknown subcommand"), "{error}");
    }
}

/// Returns the settings that let clients call MODULE and DEBUG. Redis 6.2 has none: there they always may.
pub fn all_commands() -> &'static [&'static str] {
    if is_redis_6_2() { &[] } else { &["--enable-module-command", "yes", "--enable-debug-command", "yes"] }
}

/// Returns the setting with which a replica gets its snapshot over a second connection, if the server has one.
pub fn snapshot_channel() -> &'static [&'static str] {
    match (is_valkey(), SERVER.1.0) {
        (false, 8..) => &["--repl-rdb-channel", "yes"],
        (true, 8..) => &["--dual-channel-replication-enabled", "yes"],
        _ => &[],
    }
}
