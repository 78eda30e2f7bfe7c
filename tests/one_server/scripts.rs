//! The scripts: a first run, and a part of those that run seldom. costs.rs runs a part of scripts/bench.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::support::needs::{EVERYWHERE, SCRIPTS_TEST, leave_out, needs};
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
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0, "files stayed");
}

/// A project on which scripts/test takes seconds: each file, and its text.
const SMALL_PROJECT: [(&str, &str); 8] = [
    (
        "Cargo.toml",
        r#"package = { name = "redis-cell", version = "1.0.0", edition = "2024", autotests = false }
lib.crate-type = ["cdylib"]
test = [{ name = "servers", path = "tests/main.rs" }]
example = [{ name = "redis_rs", path = "example.rs" }]
"#,
    ),
    ("Cargo.lock", "version = 4\n[[package]]\nname = \"redis-cell\"\nversion = \"1.0.0\"\n"),
    ("src/lib.rs", ""),
    ("example.rs", "fn main() {}\n"),
    ("tests/main.rs", "#[test]\nfn passes() {}\n"),
    ("tests/examples/applications.py", "Application = None\n"),
    ("tests/examples/servers.py", "Clock = Server = None\n"),
    (
        "tests/examples/test_two.py",
        "import os, pytest

def test_that_fails():
    assert False

def test_that_needs_a_package():
    if 'REQUIRE_ALL' not in os.environ:
        pytest.skip('it is not installed')
",
    ),
];

fn small_project() -> TempDir {
    let project = new_folder();
    for (file, text) in SMALL_PROJECT {
        let path = project.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let copied = ["scripts", ".ci", "tests/examples/conftest.py", "tests/examples/pytest.ini"];
    output(Command::new("cp").args(["-r", "--parents"]).args(copied).arg(project.path()).current_dir(ROOT));
    project
}

/// Runs a command that runs scripts/test in the project, which must fail. Returns its output, then its errors.
fn failed(project: &TempDir, words: &[&str], environment: &[(&str, &Path)]) -> String {
    let mut command = Command::new(words[0]);
    for variable in ["CARGO_TARGET_DIR", "EVERYWHERE", "LIBRARIES", "REQUIRE_ALL", "SERVER"] {
        command.env_remove(variable);
    }
    command.args(&words[1..]).current_dir(project.path()).env("SERVERS", "redis-server");
    let output = command.envs(environment.iter().copied()).output().unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(!output.status.success(), "{said}");
    said
}

#[test]
fn scripts_test_names_the_examples_that_failed_and_removes_what_broken_off_runs_have_left() {
    needs!(SCRIPTS_TEST);
    let project = small_project();
    let names = [".tmpA", "app-A", "server-A"];
    let [dead, alive] = [u32::MAX, std::process::id()]
        .map(|process| names.map(|name| project.path().join(format!("target/tmp/{name}.{process}"))));
    for folder in dead.iter().chain(&alive) {
        fs::create_dir_all(folder).unwrap();
    }
    let said = failed(&project, &["scripts/test"], &[]);
    assert!(said.contains("examples: 1 passed, 1 failed, 0 left out, test_two.py::test_that_fails\n"), "{said}");
    assert!(!said.contains("the disk is full"), "{said}");
    assert!(!dead.iter().any(|folder| folder.exists()) && alive.iter().all(|folder| folder.exists()));

    let said = failed(&project, &["scripts/test", "tests/examples/test_two.py", "-k", "fails"], &[]);
    assert!(said.ends_with("\n0 passed, 1 failed, 0 left out, test_two.py::test_that_fails\n"), "{said}");
}

/// apt is the real one, with a repository of its own. That has one package, whose file is gone.
#[test]
fn a_package_that_apt_cannot_install_fails_scripts_test_and_one_that_debian_lacks_is_left_out() {
    needs!(SCRIPTS_TEST);
    if !is_root() {
        leave_out("needs root");
        return;
    }
    let project = small_project();
    let apt = project.path().join("apt");
    fs::create_dir_all(apt.join("lists/partial")).unwrap();
    let folder = apt.display();
    for (file, text) in [
        ("Packages", "Package: cell-gone\nVersion: 1\nArchitecture: all\nFilename: gone.deb\nSize: 1\n".to_string()),
        ("sources.list", format!("deb [trusted=yes] file:{folder} ./\n")),
        (
            "settings",
            format!(
                "Dir::Etc::SourceList \"{folder}/sources.list\"; Dir::Etc::SourceParts \"/dev/null\";
                Dir::State \"{folder}\"; Dir::Cache \"{folder}\"; APT::Sandbox::User \"root\";"
            ),
        ),
    ] {
        fs::write(apt.join(file), text).unwrap();
    }
    let script = project.path().join("scripts/test");
    let original = fs::read_to_string(&script).unwrap();
    let run = |packages: &str| {
        let words = ["scripts/setup redis-server", &format!("scripts/setup {packages} redis-server")];
        fs::write(&script, original.replace(words[0], words[1])).unwrap();
        failed(&project, &["scripts/test"], &[("APT_CONFIG", &apt.join("settings"))])
    };

    let lacking = run("cell-never-was");
    assert!(lacking.contains("1 setup: missing: cell-never-was"), "{lacking}");
    assert!(lacking.contains("setup: 1 passed, 0 failed\n"), "{lacking}");
    assert!(lacking.contains("examples: 0 passed, 1 failed, 1 left out"), "{lacking}");
    let gone = run("cell-never-was cell-gone");
    assert!(gone.contains("setup: missing: cell-gone. apt-get could not install"), "{gone}");
    assert!(!gone.contains("examples:"), "{gone}");
    // Without a list of packages, as without a network, nothing is known of any.
    fs::remove_file(apt.join("Packages")).unwrap();
    let offline = run("cell-never-was");
    assert!(offline.contains("setup: missing: cell-never-was. apt-get could not install"), "{offline}");
}

#[test]
fn scripts_test_says_that_the_disk_is_full() {
    needs!(SCRIPTS_TEST);
    let mounted = Command::new("unshare").args(["--mount", "true"]).output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        leave_out("needs the right to mount");
        return;
    }
    let project = small_project();
    fs::create_dir(project.path().join("target")).unwrap();
    let full = "mount -t tmpfs -o size=3m none target; exec scripts/test";
    let said = failed(&project, &["unshare", "--mount", "sh", "-ec", full], &[]);
    assert!(said.contains("test: the disk is full, or nearly: "), "{said}");
}

fn is_root() -> bool {
    output(Command::new("id").arg("-u")) == "0\n"
}

#[test]
fn scripts_memcheck_runs_a_test_under_valgrind_and_finds_no_error() {
    needs!(EVERYWHERE);
    module();
    let said = output(script("memcheck").arg("reply::both_protocols"));
    assert!(said.ends_with("memcheck: 1 servers ran under valgrind\n"), "{said}");
}
