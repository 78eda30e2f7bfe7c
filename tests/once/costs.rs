//! The costs of a call: `scripts/bench` counts instructions again, and the pages have the figures that it measured.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value as Json;

use crate::support::needs::{SCRIPTS_TEST, needs};
use crate::support::{Server, executable, info, module};

fn read(page: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(page)).unwrap()
}

/// Returns the page in one line, as a reader hears it.
fn words(page: &str) -> String {
    read(page).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the rows of each table of costs on a page, by the table's head.
fn tables(page: &str) -> HashMap<String, Vec<String>> {
    let text = read(page);
    let mut tables = HashMap::new();
    let mut lines = text.lines();
    while let Some(head) = lines.next() {
        if head.starts_with("| one ") {
            let rows = lines.by_ref().skip(1).take_while(|line| line.starts_with('|')).map(str::to_string).collect();
            assert!(tables.insert(head.to_string(), rows).is_none(), "{page} has two tables {head}");
        }
    }
    tables
}

/// Returns the cells of a column of the results, by the first cell of their row. The table is the one whose head begins
/// with `begin`; the column is the one that stands `right` columns to the right of the one with this name.
fn column(begin: &str, name: &str, right: usize) -> Vec<(String, String)> {
    let cells = |line: &str| -> Vec<String> { line.split('|').map(|cell| cell.trim().to_string()).collect() };
    let tables = tables("scripts/bench-results/README.md");
    let found = tables.iter().find(|(head, _)| head.starts_with(begin));
    let (head, rows) = found.unwrap_or_else(|| panic!("the results have no table {begin}"));
    let place = cells(head).iter().position(|cell| cell == name).unwrap_or_else(|| panic!("{head}: no column {name}"));
    assert!(rows.len() >= 5, "{rows:?}");
    rows.iter().map(|row| (cells(row)[1].clone(), cells(row)[place + right].clone())).collect()
}

/// Returns the ratios in a column.
fn ratios(begin: &str, name: &str) -> Vec<(String, f64)> {
    column(begin, name, 0).into_iter().map(|(row, cell)| (row, cell.parse().unwrap())).collect()
}

#[test]
fn each_cost_in_a_sentence_is_one_of_the_committed_results() {
    const ALONE: &str = "alone";
    for (page, words_before, setting, name) in [
        ("README.md", "an allowed call takes ", ALONE, "CL.THROTTLE allowed"),
        ("README.md", "and a limited call ", ALONE, "CL.THROTTLE limited"),
        ("README.md", "with an AOF it is ", "with an AOF", "CL.THROTTLE allowed"),
        ("docs/comparison.md", "where this module takes ", ALONE, "CL.THROTTLE allowed"),
        ("docs/comparison.md", "of redis-cell 0.5.0 takes [", ALONE, "redis-cell_0.5.0 allowed"),
        ("docs/costs.md", "call by two quotas takes ", ALONE, "CL.THROTTLE 2 quotas allowed"),
        ("docs/costs.md", "Beside an AOF an allowed call takes ", "with an AOF", "CL.THROTTLE allowed"),
        ("docs/costs.md", "and beside a replica ", "with a replica", "CL.THROTTLE allowed"),
    ] {
        let text = words(page);
        let rest = text.split_once(words_before).unwrap_or_else(|| panic!("{page} does not say {words_before:?}")).1;
        let said = rest.split([' ', ';']).next().unwrap().trim_end_matches('.');
        // The ratio stands to the right of the instructions.
        let ratios = column("| one check | alone |", setting, 1);
        let (_, measured) = ratios.iter().find(|(row, _)| row == name).unwrap();
        assert_eq!(said, measured, "{page}: {words_before}");
    }
}

/// The words are about a server that is alone. They round: a ratio of 1.01 is "as much".
#[test]
fn costs_in_words_on_the_page_are_those_measured() {
    let page = words("docs/costs.md");
    let says = |sentence: &str| assert!(page.contains(sentence), "docs/costs.md no longer says: {sentence}");
    let alone = |name| ratios("| one server | SET PX", name);
    let beside = |one: &'static str, other: &'static str| alone(one).into_iter().zip(alone(other));

    says("From Redis 7 on, an allowed call takes fewer instructions than a SET on every server that is alone.");
    for (server, ratio) in alone("allowed") {
        assert!(ratio < 1.0 || server.starts_with("Redis 6."), "{server}: an allowed call takes {ratio} of a SET");
    }
    says("A key's second call costs as much as later ones.");
    for ((server, later), (_, second)) in beside("allowed", "second call") {
        assert!((second - later).abs() < 0.02, "{server}: a second call takes {second} of a SET, later ones {later}");
    }
    says("A look costs as much as a limited call");
    for ((server, limited), (_, look)) in beside("limited", "look") {
        assert!((look - limited).abs() < 0.02, "{server}: a look takes {look} of a SET, a limited call {limited}");
    }
    says("In CPU, an allowed call costs about as much as a SET");
    let cpu = ratios("| one check, CPU |", "× SET PX");
    let (_, allowed) = cpu.iter().find(|(row, _)| row == "CL.THROTTLE allowed").unwrap();
    assert!((0.8..1.25).contains(allowed), "an allowed call takes {allowed} of a SET's CPU");
}

/// These keys fill the server's tables as far as a million do: 125,000 of 2^17 places, 1,000,000 of 2^20.
#[test]
#[ignore = "slow: many keys"]
fn many_keys_take_the_bytes_that_the_page_says() {
    needs!("Redis 7.0 alone");
    needs!(SCRIPTS_TEST);
    let page = read("docs/operating.md");
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
