//! Tests the scripts: the usage of each, and what scripts/run and scripts/test do. costs.rs runs a part of
//! scripts/bench.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::thread;

use crate::support::needs::{SCRIPTS_TEST, leave_out, needs};
use crate::support::pages::ROOT;
use crate::support::programs::{output, signal};
use crate::support::{Server, assert_reply, ends_with_the_test, free_port, module, new_folder, wait_until};

#[test]
fn scripts_run_starts_a_server_until_ctrl_c_and_leaves_nothing_behind() {
    needs!(SCRIPTS_TEST);
    module();
    let (port, temporary) = (free_port().to_string(), new_folder());
    // Send the script SIGINT, as Ctrl-C would, when the test ends, even if the test is killed. Restore the default
    // action of SIGINT, because a shell's background processes ignore it.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "INT", "env", "--default-signal=INT", "scripts/run"]).current_dir(ROOT);
    command.env("PORT", &port).env("TMPDIR", temporary.path());
    let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(process.stdout.take().unwrap()).lines().map(Result::unwrap);
    let said: Vec<_> = lines.take_while(|line| !line.starts_with("Press Ctrl-C to stop the server")).collect();
    let call = said
        .iter()
        .find_map(|line| line.strip_prefix("    redis-cli -p "))
        .unwrap_or_else(|| panic!("scripts/run prints no call: {said:#?}"));

    let client = redis::Client::open(format!("redis://127.0.0.1:{port}/")).unwrap();
    let (_, call) = call.split_once(&format!("{port} ")).unwrap();
    assert_reply(&mut client.get_connection().unwrap(), call, &[0, 16, 15, -1, 2]);
    let second = command.stderr(Stdio::piped()).output().unwrap();
    assert!(String::from_utf8(second.stderr).unwrap().contains(&format!("port {port} is taken")));
    signal(process.id(), "INT");
    assert!(process.wait().unwrap().success());
    wait_until("the server stops", || client.get_connection().is_err());
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0, "files were left behind");
}

/// No server can start on port 70000. If the script did not notice that its server has exited, it would ask the server
/// 1,200 times whether it is ready.
#[test]
fn scripts_run_fails_as_soon_as_the_server_has_exited() {
    needs!(SCRIPTS_TEST);
    let bin = new_folder();
    let asked = bin.path().join("asked");
    let client = format!("#!/bin/sh\necho >>{}\nPATH=${{PATH#*:}}\nexec redis-cli \"$@\"\n", asked.display());
    fs::write(bin.path().join("redis-cli"), client).unwrap();
    output(Command::new("chmod").arg("+x").arg(bin.path().join("redis-cli")));
    let path = format!("{}:{}", bin.path().display(), env::var("PATH").unwrap());
    let mut command = ends_with_the_test(format!("{ROOT}/scripts/run"));
    let ended = command.env("PATH", path).env("PORT", "70000").output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(
        ended.status.code() == Some(1) && said.contains("run: the server did not start"),
        "scripts/run says {said}"
    );
    assert!(fs::read_to_string(asked).unwrap().lines().count() < 600);
}

/// Runs the scripts in a folder that contains nothing else. If a script did more than print its usage, it would fail
/// there, or leave files.
#[test]
fn each_script_prints_its_usage_for_help_and_after_wrong_arguments_and_touches_nothing() {
    let folder = new_folder();
    output(Command::new("cp").args(["-r", "scripts"]).arg(folder.path()).current_dir(ROOT));
    let find = |arguments: &[&str]| output(Command::new("find").args(arguments).current_dir(folder.path()));
    let files = find(&[".", "-printf", "%p %T@\n"]);
    for script in find(&["scripts", "-type", "f", "-perm", "-u+x", "!", "-path", "*/debian/*"]).lines() {
        for (argument, status) in [("--help", 0), ("-h", 0), ("--no-such-option", 2)] {
            let ended = Command::new(folder.path().join(script)).arg(argument).current_dir(folder.path()).output();
            let ended = ended.unwrap();
            let said = String::from_utf8(ended.stdout).unwrap();
            let is_usage = said.starts_with("Usage: ") && said.contains(script) && ended.stderr.is_empty();
            assert!(
                is_usage && ended.status.code() == Some(status),
                "{script} {argument} ends with {}\n{said}",
                ended.status
            );
        }
    }
    assert_eq!(find(&[".", "-printf", "%p %T@\n"]), files);
}

/// Creates a small project, for which scripts/test takes only seconds. The project has a test that passes, a slow test,
/// and a test that aborts. It has an example that fails, and one that needs a package. Its apt repository lacks the
/// file of the only package.
const SMALL_PROJECT: &str = r#"
cp -r --parents scripts .ci tests/examples/pytest.ini "$0"
cd "$0"
mkdir -p apt target/servers/redis-7.0
cat >Cargo.toml <<END
package = { name = "redis-cell", version = "1.0.0", edition = "2024", autotests = false }
lib = { name = "redis_cell", path = "rule.rs", crate-type = ["cdylib"] }
test = [{ name = "servers", path = "servers.rs" }]
END
printf 'version = 4\n[[package]]\nname = "redis-cell"\nversion = "1.0.0"\n' >Cargo.lock
printf '#[test]\nfn passes() {}\n#[test]\n#[ignore]\nfn is_slow() {}\n' >rule.rs
printf 'mod every_server {\n    #[test]\n    fn aborts() {\n        std::process::abort()\n    }\n}\n' >servers.rs
printf '%s\n' 'import os, pytest' 'def test_that_fails(): assert False' \
    'def test_that_needs_a_package(): "REQUIRE_ALL" in os.environ or pytest.skip()' >tests/examples/test_two.py
printf '%s\n' '#!/bin/sh' "supported='" 'redis-7.0 7.0.15*' "'" >scripts/servers
touch target/servers/redis-7.0/redis-server tests/examples/packages.py
printf '%s: %s\n' Package cell-gone Version 1 Architecture all Filename gone.deb Size 1 >apt/Packages
echo "deb [trusted=yes] file:$0/apt ./" >apt/sources.list
printf '%s;\n' "Dir::Etc::SourceList \"$0/apt/sources.list\"" 'Dir::Etc::SourceParts "/dev/null"' \
    "Dir::State \"$0/apt\"" "Dir::Cache \"$0/apt\"" 'APT::Sandbox::User "root"' >apt/settings
"#;

#[test]
fn scripts_test_counts_results_and_fails_after_a_failed_installation_or_an_aborted_test() {
    needs!(SCRIPTS_TEST);
    if output(Command::new("id").arg("-u")) != "0\n" {
        leave_out("needs root");
        return;
    }
    let folder = new_folder();
    let project = folder.path();
    output(Command::new("bash").args(["-ec", SMALL_PROJECT]).arg(project).current_dir(ROOT));
    // Runs scripts/test, changed so that it also needs `package`, and returns its output. The script must fail.
    let run = |package: &str, option: &str| {
        let script = "sed \"s/packages=(make/& $1/\" \"$0/scripts/test\" >scripts/test
            unset CARGO_TARGET_DIR EVERYWHERE MODULE REDIS_RS REQUIRE_ALL SERVER
            APT_CONFIG=$PWD/apt/settings scripts/test $2 2>&1";
        let mut command = Command::new("sh");
        let output = command.args(["-c", script, ROOT, package, option]).current_dir(project).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };

    let said = run("cell-never-was", "");
    for line in [
        "setup: missing: cell-never-was (not in this release of Debian)",
        "examples: FAILED tests/examples/test_two.py::test_that_fails - assert False",
        "test: 1 tests passed, 1 failed, 2 were left out, in ",
        "test: the slow tests have to run as well",
        "test: no test ran, see ./",
        ": on-redis-7.0] Error ",
    ] {
        assert!(said.contains(line), "{line:?} is missing:\n{said}");
    }
    // With --quick, only the test that aborts fails.
    let said = run("", "--quick");
    let counted = "test: 1 tests passed, 0 failed, 1 were left out, in ";
    assert!(said.contains(counted) && said.contains(": here] "), "scripts/test says {said}");
    let said = run("cell-gone", "");
    assert!(said.ends_with("setup: missing: cell-gone. apt-get could not install all of them; the reason is above\n"));
}

/// A test run that is killed cannot stop its servers, so each server must end together with the thread that started it.
#[test]
fn a_run_that_is_killed_leaves_no_server() {
    let server = thread::spawn(Server::start).join().unwrap();
    wait_until("the server ends", || server.client().get_connection().is_err());
}
