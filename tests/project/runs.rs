//! A run of the tests that is killed: this binary, with one test.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::support::{Process, module, wait_for, wait_until};

/// Returns the working directory of a process if that is a test's server.
fn folder(process: &str) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{process}/cwd")).ok().filter(|folder| folder.starts_with(env!("CARGO_TARGET_TMPDIR")))
}

#[test]
fn a_run_that_is_killed_leaves_no_server() {
    // This test would run for a quarter of an hour.
    let test = "every_server::soak::under_a_long_mixed_load_memory_stays_as_it_was";
    let mut run = Command::new(env::current_exe().unwrap());
    run.args(["--exact", "--include-ignored", test]).env("MODULE", module()).env("SOAK_SECONDS", "1000");
    let mut run = Process::start(run.env_remove("SLOW_SERVER").stdout(Stdio::null()));
    let (server, its_folder) = wait_for("a server", || {
        let threads = fs::read_dir(format!("/proc/{}/task", run.0.id())).unwrap();
        let children = threads.filter_map(|thread| fs::read_to_string(thread.unwrap().path().join("children")).ok());
        let children = children.collect::<String>();
        children.split_whitespace().find_map(|child| Some((child.to_string(), folder(child)?)))
    });
    run.0.kill().unwrap();
    wait_until("the server ends", || folder(&server).is_none());
    fs::remove_dir_all(its_folder).unwrap();
}
