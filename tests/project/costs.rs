//! Tests what a call and a key cost. `scripts/bench` counts a call's instructions, and docs/operating.md gives a key's
//! size in bytes.

use std::process::Command;

use serde_json::Value as Json;

use crate::support::needs::{EVERYWHERE, REDIS_7_0, SCRIPTS_TEST, leave_out, needs};
use crate::support::pages::{ROOT, text_of};
use crate::support::programs::output;
use crate::support::{Server, executable, info, module};

/// The test creates 125,000 keys. These fill a hash table of 2^17 slots as much as a million keys fill one of 2^20.
#[test]
#[ignore = "slow: many keys"]
fn each_key_takes_as_many_bytes_as_the_page_says() {
    needs!(REDIS_7_0);
    needs!(SCRIPTS_TEST);
    let page = text_of("docs/operating.md").split_whitespace().collect::<Vec<_>>().join(" ");
    for (name, quotas) in [("one quota", 1), ("two quotas", 2), ("eight quotas", 8)] {
        let (_server, mut connection) = Server::start().connected();
        let before: i64 = info(&mut connection, "used_memory").parse().unwrap();
        let call = "redis.call('CL.THROTTLE', string.format('%016d', key), unpack(ARGV))";
        let mut eval = redis::cmd("EVAL");
        eval.arg(format!("for key = 1, 125000 do {call} end")).arg(0).arg(&["9", "1", "86400", "1"]);
        eval.arg(["9", "1", "86400"].repeat(quotas - 1)).exec(&mut connection).unwrap();
        let bytes = (info(&mut connection, "used_memory").parse::<i64>().unwrap() - before + 62_500) / 125_000;
        // The size of the server's own tables differs by about a byte per key from run to run.
        let says = |bytes: i64| page.contains(&format!("{bytes} bytes with {name}"));
        assert!(
            (bytes - 2..=bytes + 2).any(says),
            "the page does not say that a limiter with {name} takes {bytes} bytes"
        );
    }
}

/// Unlike times, instruction counts differ by less than 1% from run to run, and only because the server's hash tables
/// are laid out at random. The counts are compared with those of the server's own `SET key value PX ms`. Another
/// version of Rust builds a different library, so the bound applies only to the version that the results name, which CI
/// uses.
#[test]
fn a_call_costs_at_most_5_percent_more_than_in_the_committed_results() {
    needs!(REDIS_7_0);
    needs!(EVERYWHERE);
    module();
    let results: Json = serde_json::from_str(&text_of("scripts/bench.json")).unwrap();
    let (rust, here) = (results["about"]["rust"].as_str().unwrap(), output(Command::new("rustc").arg("--version")));
    if here.contains(rust) {
        let mut bench = Command::new("scripts/bench");
        bench.arg("--check").current_dir(ROOT).env("SERVER", executable()).env_remove("PEER");
        println!("{}", output(&mut bench));
    } else {
        leave_out(&format!("the committed results are for Rust {rust}"));
    }
}
