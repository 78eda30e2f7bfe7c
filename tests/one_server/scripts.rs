//! The scripts: a first run, and a part of those that run seldom. costs.rs runs a part of scripts/bench.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::support::needs::{EVERYWHERE, SCRIPTS_TEST, needs};
use crate::support::pages::ROOT;
use crate::support::programs::{output, signal};
use crate::support::{assert_reply, free_port, module, new_folder, run, wait_until};

fn script(name: &str) -> Command {
    let mut script = Command::new(format!("scripts/{name}"));
    script.current_dir(ROOT).env_remove("SERVER").env_remove("SERVERS");
    script
}

/// scripts/run, which runs until it gets Ctrl-C: from the test, or when the test fails.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        if self.0.try_wait().is_ok_and(|ended| ended.is_none()) {
            signal(self.0.id(), "INT");
            let _ = self.0.wait();
        }
    }
}

/// The script starts `redis-server`, whichever server the other tests run on.
#[test]
fn scripts_run_leaves_a_server_answering_until_ctrl_c_and_nothing_behind() {
    needs!(SCRIPTS_TEST);
    module();
    let port = free_port();
    let temporary = new_folder();
    let start = || {
        // `env` restores the signal of Ctrl-C, which a test in a shell's background ignores, and so would the script.
        let mut command = Command::new("env");
        command.args(["--default-signal=INT", "scripts/run", "--maxmemory", "123mb", "--requirepass", "secret"]);
        command.current_dir(ROOT).env("PORT", port.to_string()).env("TMPDIR", temporary.path());
        command
    };
    let mut process = Running(start().stdout(Stdio::piped()).spawn().unwrap());
    let lines = BufReader::new(process.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let text = lines.take_while(|line| !line.contains("Ctrl-C ends the server")).collect::<Vec<_>>().join("\n");
    assert!(text.contains(&format!("CL.THROTTLE is ready at 127.0.0.1:{port}")), "{text}");
    let first = "1) (integer) 0\n2) (integer) 3\n3) (integer) 2\n4) (integer) -1\n5) (integer) 60";
    // The next integer, retry_after, is a second less on a slow machine.
    let limited = "1) (integer) 1\n2) (integer) 3\n3) (integer) 0\n";
    assert!(text.contains(first) && text.contains(limited), "{text}");

    let client = redis::Client::open(format!("redis://:secret@127.0.0.1:{port}/")).unwrap();
    let mut connection = client.get_connection().unwrap();
    // The reader's next call is the README's first.
    assert_reply(&mut connection, "CL.THROTTLE user123 15 30 60 1", &[0, 16, 15, -1, 2]);
    let (_, limit): (String, String) = run(&mut connection, "CONFIG GET maxmemory").unwrap();
    assert_eq!(limit, (123 << 20).to_string());

    let second = start().output().unwrap();
    assert!(!second.status.success());
    assert!(String::from_utf8(second.stderr).unwrap().contains(&format!("port {port} is taken")));

    signal(process.0.id(), "INT");
    assert!(process.0.wait().unwrap().success());
    wait_until("the server ends", || client.get_connection().is_err());
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0, "files stayed");
}

#[test]
fn scripts_memcheck_runs_a_test_under_valgrind_and_finds_no_error() {
    needs!(EVERYWHERE);
    module();
    let said = output(script("memcheck").arg("reply::both_protocols"));
    assert!(said.ends_with("memcheck: 1 servers ran under valgrind\n"), "{said}");
}
