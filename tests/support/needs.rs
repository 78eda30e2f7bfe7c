//! What some tests need: a feature of the server, a program on this machine, or a certain kind of test run.

use std::io::Write;
use std::process::Command;
use std::sync::LazyLock;

use super::executable;

/// Skips a test if something that the test needs is missing, and prints a line that says so. `scripts/test` collects
/// these lines. Once `scripts/test` has installed all packages, it sets `REQUIRE_ALL`, and a missing program then fails
/// the test.
macro_rules! needs {
    ($need:expr) => {
        if !$crate::support::needs::has($need) {
            return;
        }
    };
}
pub(crate) use needs;

/// Something that a test needs, and that some servers, machines or test runs lack.
pub enum Need {
    /// The name of a feature, and a function that returns whether the server has it.
    Feature(&'static str, fn() -> bool),
    /// The name of a Debian package, a program, and arguments with which it succeeds if the package is installed.
    Package(&'static str, &'static str, &'static [&'static str]),
    /// An environment variable, whether it must be set, and the reason to print if the test is skipped.
    Run(&'static str, bool, &'static str),
}
use Need::{Feature, Package, Run};

pub const MOVING_SLOTS: Need =
    Feature("atomic slot migration, as in Redis 8.4 or Valkey 9", || is_from((8, 4), (9, 0)));
pub const FORKS_TO_SAVE: Need = Feature("a server that forks to save", || !is_valkey() || SERVER.1 < (9, 2));
pub const REDIS_7: Need = Feature("Redis 7", || !is_redis_6_2());
pub const REDIS_7_0: Need = Feature("exactly Redis 7.0", || !is_valkey() && SERVER.1 == (7, 0));

pub const PYTHON_REDIS: Need = Package("python3-redis", "/usr/bin/python3", &["-c", "import redis"]);
pub const REDIS_CLI: Need = Package("redis-tools", "redis-cli", &["--version"]);

/// A run by scripts/test, for tests that install, download or measure something, or that take minutes.
pub const SCRIPTS_TEST: Need = Run("SCRIPTS_TEST", true, "scripts/test runs it");
/// A run by `scripts/test --everywhere`, for tests that download or compile a lot, and whose results seldom change.
pub const EVERYWHERE: Need = Run("EVERYWHERE", true, "scripts/test --everywhere runs it");
/// A server at normal speed, for tests that fail if it is ten times slower, as in an emulator or under valgrind.
pub const FAST: Need = Run("SLOW_SERVER", false, "needs a server that is not slowed down");

/// Returns whether the need is met. If it is not, prints that the test is left out.
pub fn has(need: Need) -> bool {
    let is_set = |name| std::env::var_os(name).is_some();
    match need {
        Feature(name, has_it) => has_it() || leave_out(&format!("needs {name}")),
        Package(name, program, arguments) => {
            let check = Command::new(program).args(arguments).output();
            let is_installed = check.is_ok_and(|output| output.status.success());
            assert!(
                is_installed || !is_set("REQUIRE_ALL"),
                "{name} is not installed: scripts/test should have installed it"
            );
            is_installed || leave_out(&format!("{name} is not installed"))
        }
        Run(variable, set, why) => is_set(variable) == set || leave_out(why),
    }
}

/// Prints that the running test, or a part of it, is left out. Returns false.
pub fn leave_out(why: &str) -> bool {
    let test = std::thread::current().name().unwrap_or("a_part_of_a_test").to_string();
    // Write in one piece to stderr: the test harness hides what a passing test prints, and the output of eprintln! can
    // be interleaved with that of other threads.
    let _ = std::io::stderr().write_all(format!("left out: {test} ({why})\n").as_bytes());
    false
}

/// Whether the server under test is Valkey, and its version. `--version` prints "Redis server v=7.0.15 sha=..."; Valkey
/// 7.2 does not print its name: "Server v=7.2.7 ...".
static SERVER: LazyLock<(bool, (u32, u32))> = LazyLock::new(|| {
    let output = Command::new(executable()).arg("--version").output();
    let answer = output.map_or_else(|error| error.to_string(), |output| String::from_utf8(output.stdout).unwrap());
    let (kind, rest) = answer.split_once("erver v=").unwrap_or_else(|| {
        panic!("{:?} is not a server: set SERVER, or run scripts/test, which installs one: {answer}", executable())
    });
    let mut numbers = rest.split(['.', ' ']).map(|number| number.parse().unwrap());
    (!kind.starts_with("Redis"), (numbers.next().unwrap(), numbers.next().unwrap()))
});

pub fn is_valkey() -> bool {
    SERVER.0
}

/// Returns whether the server is at least this version of Redis or Valkey.
fn is_from(redis: (u32, u32), valkey: (u32, u32)) -> bool {
    SERVER.1 >= if is_valkey() { valkey } else { redis }
}

/// Returns whether the server is Redis 6.2, the oldest server, which lacks features that all others have.
pub fn is_redis_6_2() -> bool {
    !is_from((7, 0), (0, 0))
}

/// Returns whether ACL categories include a module's commands. In Redis 6.2 and 7.0, they include only the server's own
/// commands.
pub fn has_acl_categories() -> bool {
    is_from((7, 2), (0, 0))
}

/// Makes Redis 8.2 and newer crash if their statistics of key sizes are wrong. Other servers have no such check.
pub fn assert_key_sizes(connection: &mut redis::Connection) {
    if let Err(error) = super::run::<redis::Value>(connection, "DEBUG KEYSIZES-HIST-ASSERT 1") {
        assert!(error.to_string().to_lowercase().contains("unknown subcommand"), "{error}");
    }
}

/// Returns the settings that enable MODULE and DEBUG. In Redis 6.2, both commands are always enabled.
pub fn all_commands() -> &'static [&'static str] {
    if is_redis_6_2() { &[] } else { &["--enable-module-command", "yes", "--enable-debug-command", "yes"] }
}

/// Returns the setting that sends a replica its snapshot over a second connection, if the server has such a setting.
pub fn snapshot_channel() -> &'static [&'static str] {
    match (is_valkey(), SERVER.1.0) {
        (false, 8..) => &["--repl-rdb-channel", "yes"],
        (true, 8..) => &["--dual-channel-replication-enabled", "yes"],
        _ => &[],
    }
}
