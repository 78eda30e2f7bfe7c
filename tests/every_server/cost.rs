//! The costs of a call: its instructions, counted by `scripts/bench`, and the memory of a key.

use std::process::{Command, Stdio};

use redis::Value;
use serde_json::Value as Json;

use crate::support::needs::{SCRIPTS_TEST, needs};
use crate::support::{Server, executable, info, module, run};

/// The checks that are counted with an append-only file and with a replica as well.
const WRITES: [&str; 3] = ["CL.THROTTLE allowed", "CL.THROTTLE new key", "CL.THROTTLE 2 quotas allowed"];

/// Unlike seconds, instructions are the same on every run, to 1%: the server's hash tables are laid out at random. The
/// unit is the server's own `SET key value PX ms`.
#[test]
fn a_call_costs_at_most_5_percent_more_than_in_the_committed_results() {
    needs!("Redis 7.0 alone");
    needs!(SCRIPTS_TEST);
    module();
    let results: Json = serde_json::from_str(include_str!("../../scripts/bench-results/results.json")).unwrap();
    let checks = results["contestants"].as_object().unwrap().keys().filter(|name| name.starts_with("CL."));
    let bench = Command::new("scripts/bench")
        .args(["--instructions", "alone"])
        .args(checks.clone())
        .arg("aof")
        .args(WRITES)
        .arg("replica")
        .args(WRITES)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("SERVER", executable())
        .env_remove("PEER")
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(bench.status.success(), "scripts/bench failed");
    let lines = String::from_utf8(bench.stdout).unwrap();
    let counted = |setting: &str, name: &str| -> f64 {
        let begin = format!("{setting}\t{name}\t");
        lines.lines().find_map(|line| line.strip_prefix(&begin)).unwrap().parse().unwrap()
    };
    let committed = |setting: &str, name: &str| results["contestants"][name]["instructions"][setting].as_f64().unwrap();
    let mut dearer = Vec::new();
    let writes = ["aof", "replica"].map(|setting| WRITES.map(|name| (setting, name)));
    for (setting, name) in checks.map(|name| ("alone", &name[..])).chain(writes.into_iter().flatten()) {
        let now = counted(setting, name) / counted(setting, "SET PX");
        let most = committed(setting, name) / committed(setting, "SET PX") * 1.05;
        println!("{setting}: {name} takes {now:.3} times the instructions of SET PX; the most is {most:.3}");
        if now > most {
            dearer.push(format!("{setting}: {name}: {now:.3} times the instructions of SET PX; the most is {most:.3}"));
        }
    }
    assert!(dearer.is_empty(), "a change has made calls dearer:\n{}", dearer.join("\n"));
}

/// A key takes no more than a native string of 19 bytes that is not an integer, and a header of 16 bytes. The first
/// call makes this final form, and later calls keep it.
#[test]
fn a_key_is_hardly_larger_than_a_string_from_its_first_call_on() {
    let server = Server::start();
    let mut connection = server.connect();
    let mut bytes = |name: &str| -> i64 { run(&mut connection, &format!("MEMORY USAGE {name}:0000000")).unwrap() };
    let mut calls = server.connect();
    run::<()>(&mut calls, "SET plain:0000000 180000000000000000x PX 1000000").unwrap();
    let plain = bytes("plain");
    // The Redis 6.2 of the tests uses libc's malloc, which sometimes gives 16 bytes more than requested.
    let chance = if info(&mut calls, "mem_allocator") == "libc" { 16 } else { 0 };
    let sizes = [(); 3].map(|()| {
        run::<Value>(&mut calls, "CL.THROTTLE fresh:0000000 15 30 60").unwrap();
        bytes("fresh")
    });
    let small = sizes[0] <= plain + 16 + chance;
    let same = sizes.iter().all(|size| (size - sizes[0]).abs() <= chance);
    assert!(small && same, "{sizes:?} bytes after each call, a plain string takes {plain}");
}

/// Two quotas on one key take a little more memory than one, and far less than two keys, each of which takes 149 bytes.
/// The number counts the keys' shares of the server's tables.
#[test]
#[ignore = "slow: thousands of keys"]
fn a_key_with_two_quotas_takes_less_than_180_bytes() {
    const KEYS: usize = 16_000;
    needs!("Redis 7.0 alone");
    let server = Server::start();
    let mut connection = server.connect();
    let mut used = || info(&mut connection, "used_memory").parse::<usize>().unwrap();
    let before = used();
    let mut calls = server.connect();
    // The first call makes the key with one quota. The next call adds the other quota.
    for quotas in ["1", "1 999 1000 86400"] {
        for key in 0..KEYS {
            run::<Value>(&mut calls, &format!("CL.THROTTLE bytes:{key:07} 999 10 3600 {quotas}")).unwrap();
        }
    }
    drop(calls);
    let bytes = (used() - before) / KEYS;
    assert!(bytes < 180, "{bytes} bytes a key");
}
