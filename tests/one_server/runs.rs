//! Runs of the tests themselves: this binary with one test of its own.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::support::{Process, module, wait_for, wait_until};

fn run(test: &str) -> Command {
    let mut run = Command::new(env::current_exe().unwrap());
    run.args(["--exact", "--include-ignored", test]).env("MODULE", module()).stdout(Stdio::null());
    run
}

/// Returns the folder of a test's server, which it enters when it starts; `None` for another process, or if it has ended.
fn folder(process: &str) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{process}/cwd")).ok().filter(|folder| folder.starts_with(env!("CARGO_TARGET_TMPDIR")))
}

#[test]
fn a_run_that_is_killed_leaves_no_server() {
    // The server's test would take a quarter of an hour.
    let mut long = run("every_server::soak::under_a_long_mixed_load_memory_stays_as_it_was");
    let mut long = Process::start(long.env("SOAK_SECONDS", "1000").env_remove("SLOW_SERVER"));
    let (server, folder_of_it) = wait_for("a server", || {
        let threads = fs::read_dir(format!("/proc/{}/task", long.0.id())).unwrap();
        let children = threads.filter_map(|thread| fs::read_to_string(thread.unwrap().path().join("children")).ok());
        let children = children.collect::<String>();
        children.split_whitespace().find_map(|child| Some((child.to_string(), folder(child)?)))
    });
    long.0.kill().unwrap();
    wait_until("the server ends", || folder(&server).is_none());
    fs::remove_dir_all(folder_of_it).unwrap();
}

#[test]
fn a_wrong_server_is_a_failure() {
    for server in ["", "/nowhere/redis-server", "true"] {
        let mut run = run("every_server::operating::command_docs_explain_the_command_and_every_argument");
        let status = run.env("SERVER", server).stderr(Stdio::null()).status();
        assert!(!status.unwrap().success(), "SERVER={server:?}");
    }
}
