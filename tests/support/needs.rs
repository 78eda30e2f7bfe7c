//! What the server under test is, and what it lacks.

use std::process::Command;
use std::sync::OnceLock;

use super::executable;

/// Its kind and its version: `redis-7.0.15`.
fn server() -> &'static str {
    static SERVER: OnceLock<String> = OnceLock::new();
    SERVER.get_or_init(|| {
        let output = Command::new(executable()).arg("--version").output();
        // Redis server v=7.0.15 sha=00000000:0 malloc=...
        let output = String::from_utf8(output.unwrap().stdout).unwrap().to_lowercase();
        let (kind, rest) = output.split_once(" server v=").unwrap();
        format!("{kind}-{}", rest.split(' ').next().unwrap())
    })
}

/// Where the server lacks it, by needs.txt, the test fails, and does not count as passed.
pub fn needs(need: &str) {
    let mut known = false;
    for line in include_str!("../needs.txt").lines().filter(|line| line.ends_with(need)) {
        known = true;
        let lacking = line.split_whitespace().nth(1).unwrap();
        let lacks = lacking.split(',').any(|lacking| server().starts_with(lacking));
        assert!(!lacks, "it needs {need}, and this server is {}: scripts/test leaves it out", server());
    }
    assert!(known, "{need} is not in tests/needs.txt");
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
