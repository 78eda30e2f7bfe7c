//! The costs of a call and of a key: `scripts/bench` counts instructions again, and a page has the bytes.

use std::process::{Command, Stdio};

use serde_json::Value as Json;

use crate::support::needs::{SCRIPTS_TEST, leave_out, needs};
use crate::support::pages::text_of;
use crate::support::programs::output;
use crate::support::{Server, executable, info, module};

/// These keys fill the server's tables as far as a million do: 125,000 of 2^17 places, 1,000,000 of 2^20.
#[test]
#[ignore = "slow: many keys"]
fn many_keys_take_the_bytes_that_the_page_says() {
    needs!("Redis 7.0 alone");
    needs!(SCRIPTS_TEST);
    let page = text_of("docs/operating.md");
    for (name, quotas) in [("one quota", 1), ("two quotas", 2), ("eight quotas", 8)] {
        let server = Server::start();
        let mut connection = server.connect();
        let before: i64 = info(&mut connection, "used_memory").parse().unwrap();
        let call = "redis.call('CL.THROTTLE', string.format('%016d', key), unpack(ARGV))";
        let mut eval = redis::cmd("EVAL");
        eval.arg(format!("for key = 1, 125000 do {call} end")).arg(0).arg(&["9", "1", "86400", "1"]);
        eval.arg(["9", "1", "86400"].repeat(quotas - 1)).exec(&mut connection).unwrap();
        let bytes = (info(&mut connection, "used_memory").parse::<i64>().unwrap() - before + 62_500) / 125_000;
        // The server's own tables differ by a byte a key from run to run.
        let says = |bytes: i64| page.contains(&format!("\n| {name} | {bytes} | "));
        assert!((bytes - 2..=bytes + 2).any(says), "{name}: {bytes} bytes");
    }
}

/// The checks that are counted with an append-only file and with a replica as well.
const WRITES: [&str; 3] = ["CL.THROTTLE allowed", "CL.THROTTLE new key", "CL.THROTTLE 2 quotas allowed"];

/// Unlike seconds, instructions are the same on every run, to 1%: the server's hash tables are laid out at random. The
/// unit is the server's own `SET key value PX ms`. Another Rust makes another library: the bound is for that of the
/// results, which CI has.
#[test]
fn a_call_costs_at_most_5_percent_more_than_in_the_committed_results() {
    needs!("Redis 7.0 alone");
    needs!(SCRIPTS_TEST);
    module();
    let results: Json = serde_json::from_str(include_str!("../../scripts/bench-results/results.json")).unwrap();
    let (rust, here) = (results["about"]["rust"].as_str().unwrap(), output(Command::new("rustc").arg("--version")));
    if !here.contains(rust) {
        leave_out(&format!("the committed results are of Rust {rust}"));
        return;
    }
    let checks = results["checks"].as_object().unwrap().keys().filter(|name| name.starts_with("CL."));
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
    let committed = |setting: &str, name: &str| results["checks"][name]["instructions"][setting].as_f64().unwrap();
    let mut dearer = Vec::new();
    let writes = ["aof", "replica"].map(|setting| WRITES.map(|name| (setting, name)));
    for (setting, name) in checks.map(|name| ("alone", &name[..])).chain(writes.into_iter().flatten()) {
        let now = counted(setting, name) / counted(setting, "SET PX");
        let most = committed(setting, name) / committed(setting, "SET PX") * 1.05;
        let line = format!("{setting}: {name}: {now:.3} times the instructions of SET PX; the most is {most:.3}");
        println!("{line}");
        if now > most {
            dearer.push(line);
        }
    }
    assert!(dearer.is_empty(), "a change has made calls dearer:\n{}", dearer.join("\n"));
}
