//! The scripts that run seldom: a part of each, so that it does not break unseen. costs.rs runs a part of
//! scripts/bench.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::needs::{SCRIPTS_TEST, needs};
use crate::support::pages::ROOT;
use crate::support::programs::output;
use crate::support::{module, new_folder};

fn script(name: &str) -> Command {
    let mut command = Command::new(format!("scripts/{name}"));
    command.current_dir(ROOT).env_remove("SERVER").env_remove("SERVERS");
    command
}

/// Two Debian suites have a Redis 8: the source is that of the newer one. Only one of the two has a Valkey 9.
#[test]
fn scripts_guest_gets_the_source_of_the_server_that_is_tested() {
    needs!(SCRIPTS_TEST);
    let versions = ["REDIS_VERSION \"7.0.", "REDIS_VERSION \"8.", "VALKEY_VERSION \"9."];
    for (name, version) in ["redis-7.0", "redis-8", "valkey-9"].into_iter().zip(versions) {
        let suite = output(script("servers").args(["--source", name]));
        let folder = Path::new(suite.trim()).parent().unwrap();
        let source = fs::read_to_string(folder.join("src/version.h")).unwrap();
        assert!(source.contains(version), "{source}");
        assert!(folder.join("tests/unit/expire.tcl").exists(), "{suite}");
    }
}

/// The test lets a stand-in for another redis-cell abort, which is no error of the module.
#[test]
fn scripts_memcheck_runs_a_test_under_valgrind_and_finds_no_error() {
    needs!(SCRIPTS_TEST);
    module();
    let said = output(script("memcheck").arg("moving::redis_cell_goes_on"));
    assert!(said.ends_with("memcheck: 3 servers ran under valgrind\n"), "{said}");
}

#[test]
fn scripts_memcheck_counts_errors_of_the_module_and_none_of_the_server_or_of_a_stand_in() {
    let invalid = "==7== Invalid read of size 8\n==7==    at 0x1: {at}\n==7==    by 0x2: call (server.c:3)\n==7== \n";
    let held = "==7== 20 bytes in 1 blocks are {held}\n==7==    at 0x1: zmalloc (zmalloc.c:2)\n==7==    by 0x2: {at}\n";
    let ours = "redis_cell::state::read (state.rs:9)";
    let reports = [
        (invalid.replace("{at}", ours), true),
        (invalid.replace("{at}", "RedisModule_OnLoad (lib.rs:40)"), true),
        (held.replace("{held}", "definitely lost in loss record 1 of 2").replace("{at}", ours), true),
        (held.replace("{held}", "still reachable in loss record 1 of 2").replace("{at}", ours), false),
        (invalid.replace("{at}", "throttle (in /tmp/redis_cell-cc.so)"), false),
        (invalid.replace("{at}", "stored (in /tmp/libredis_cell.so)"), false),
    ];
    for (report, counts) in reports {
        let mut filter = script("memcheck.d/ours").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        filter.stdin.take().unwrap().write_all(report.as_bytes()).unwrap();
        let ended = filter.wait_with_output().unwrap();
        assert_eq!((ended.status.success(), ended.stdout.is_empty()), (!counts, !counts), "{report}");
    }
}

/// The pictures have no date, and the clock of their server is the test's.
#[test]
fn the_pictures_on_the_pages_are_those_that_scripts_bench_draws() {
    needs!(SCRIPTS_TEST);
    module();
    let folder = new_folder();
    output(script("bench").arg("--pictures").arg(folder.path()));
    for name in ["tokens.svg", "window.svg"] {
        let [drawn, committed] =
            [folder.path(), &Path::new(ROOT).join("docs")].map(|folder| fs::read(folder.join(name)).unwrap());
        assert!(drawn == committed, "docs/{name}: scripts/bench --pictures draws it anew");
    }
}
