//! The scripts: a first run, and a part of those that run seldom. costs.rs runs a part of scripts/bench.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::support::needs::{EVERYWHERE, SCRIPTS_TEST, needs};
use crate::support::pages::{ROOT, text_of};
use crate::support::programs::{output, output_and_errors, signal};
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

/// A row of scripts/servers has a name, a version with a star if the server is a usual one, an origin, and packages. In a
/// place that names them, a line break counts as a space, and the "and" of a list as a comma.
#[test]
fn every_place_names_the_servers_that_scripts_servers_fetches() {
    let says = |file: &str, words: &str| {
        let text = text_of(file).split_whitespace().collect::<Vec<_>>().join(" ").replace(" and ", ", ");
        assert!(text.contains(words), "{file} does not say {words:?}, as scripts/servers does");
    };
    let script = text_of("scripts/servers");
    let (_, rows) = script.split_once("\nsupported='\n").unwrap();
    let rows = rows.lines().take_while(|row| *row != "'").map(|row| row.split_whitespace().collect());
    let rows: Vec<Vec<_>> = rows.collect();
    let name = |row: &Vec<&str>| row[0].replace("redis-", "Redis ").replace("valkey-", "Valkey ");
    for row in &rows {
        says("docs/platforms.md", &format!("| {} | {} |", name(row), row[1].trim_end_matches('*')));
        if row[2].starts_with("pypi:") {
            says("scripts/servers.d/pypi", &format!("{} --hash=", row[3]));
        }
    }
    let usual: Vec<_> = rows.iter().filter(|row| row[1].ends_with('*')).map(name).collect();
    let usual = usual.join(", ").replace(", Redis ", ", ");
    let (redis, valkey) = usual.split_once(", Valkey ").unwrap();
    says("docs/development.md", &format!("{redis}, Valkey {}", valkey.replace("Valkey ", "")));
    let newest = |kind| rows.iter().filter_map(|row| row[0].strip_prefix(kind)).next_back().unwrap();
    let (redis, valkey) = (newest("redis-"), newest("valkey-"));
    says("README.md", &format!(" to {redis}, Valkey 7.2 to {valkey}"));
    says("docs/design.md", &format!("Redis 8.2 to {redis} ends"));
    says("tests/hostile/client.rs", &format!("(8.2 to {redis})"));
    says("scripts/bench.d/page.py", &format!("Redis {redis}, Valkey 8.0, {valkey}"));
    let workflow = text_of(".github/workflows/ci.yml");
    let (_, suites) = workflow.split_once("server: [redis").unwrap();
    for suite in format!("redis{}", suites.split(']').next().unwrap()).split(", ") {
        assert!(rows.iter().any(|row| row[0] == suite), "ci.yml: scripts/servers has no {suite}");
    }
}

/// scripts/test sets `REQUIRE_ALL` where it has installed all programs.
#[test]
fn a_missing_program_leaves_a_test_out_and_fails_it_under_scripts_test() {
    let test = "every_server::pages::sessions_are_what_redis_cli_shows";
    let mut alone = Command::new(std::env::current_exe().unwrap());
    alone.args(["--exact", "--include-ignored", test]).env("PATH", "");
    let left_out = output_and_errors(alone.env_remove("REQUIRE_ALL"));
    assert!(left_out.contains(&format!("left out: {test} (redis-tools is not installed)\n")), "{left_out}");
    assert!(!alone.env("REQUIRE_ALL", "yes").output().unwrap().status.success());
}

#[test]
fn scripts_memcheck_runs_a_test_under_valgrind_and_finds_no_error() {
    needs!(EVERYWHERE);
    module();
    let said = output(script("memcheck").arg("reply::both_protocols"));
    assert!(said.ends_with("memcheck: 1 servers ran under valgrind\n"), "{said}");
}
