//! The scripts: a first run, and a part of those that run seldom. costs.rs runs a part of scripts/bench.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::needs::{EVERYWHERE, SCRIPTS_TEST, leave_out, needs};
use crate::support::pages::ROOT;
use crate::support::programs::{output, signal};
use crate::support::{assert_reply, free_port, module, new_folder, run, wait_until};

/// The script starts `redis-server`, whichever server the other tests run on.
#[test]
fn scripts_run_leaves_a_server_answering_until_ctrl_c_and_nothing_behind() {
    needs!(SCRIPTS_TEST);
    module();
    let port = free_port();
    let temporary = new_folder();
    let start = || {
        // A test that fails sends Ctrl-C as well: its thread ends. `env` restores the signal, which a test in a shell's
        // background ignores, and so would the script.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "INT", "env", "--default-signal=INT", "scripts/run"]);
        command.args(["--maxmemory", "123mb", "--requirepass", "secret"]);
        command.current_dir(ROOT).env("PORT", port.to_string()).env("TMPDIR", temporary.path());
        command
    };
    let mut process = start().stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(process.stdout.take().unwrap()).lines().map(Result::unwrap);
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

    signal(process.id(), "INT");
    assert!(process.wait().unwrap().success());
    wait_until("the server ends", || client.get_connection().is_err());
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0, "files stayed");
}

/// A project on which scripts/test takes seconds, and a repository for apt with one package, whose file is gone: each
/// file, and its text.
const SMALL_PROJECT: [(&str, &str); 9] = [
    (
        "Cargo.toml",
        r#"package = { name = "redis-cell", version = "1.0.0", edition = "2024", autotests = false }
lib.path = "all.rs"
test = [{ name = "servers", path = "all.rs" }]
example = [{ name = "redis_rs", path = "all.rs" }]
"#,
    ),
    ("Cargo.lock", "version = 4\n[[package]]\nname = \"redis-cell\"\nversion = \"1.0.0\"\n"),
    ("all.rs", "pub fn main() {}\n"),
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
    ("apt/Packages", "Package: cell-gone\nVersion: 1\nArchitecture: all\nFilename: gone.deb\nSize: 1\n"),
    ("apt/sources.list", "deb [trusted=yes] file:PROJECT/apt ./\n"),
    (
        "apt/settings",
        r#"Dir::Etc::SourceList "PROJECT/apt/sources.list"; Dir::Etc::SourceParts "/dev/null";
Dir::State "PROJECT/apt"; Dir::Cache "PROJECT/apt"; APT::Sandbox::User "root";
"#,
    ),
];

/// apt is the real one. The small disk is a `df` that says so.
#[test]
fn scripts_test_says_what_failed_and_why_and_removes_what_broken_off_runs_have_left() {
    needs!(SCRIPTS_TEST);
    if output(Command::new("id").arg("-u")) != "0\n" {
        leave_out("needs root");
        return;
    }
    let folder = new_folder();
    let project = folder.path();
    for (file, text) in SMALL_PROJECT {
        fs::create_dir_all(project.join(file).parent().unwrap()).unwrap();
        fs::write(project.join(file), text.replace("PROJECT", project.to_str().unwrap())).unwrap();
    }
    let copied = ["scripts", ".ci", "tests/examples/conftest.py", "tests/examples/pytest.ini"];
    output(Command::new("cp").args(["-r", "--parents"]).args(copied).arg(project).current_dir(ROOT));
    fs::write(project.join("scripts/servers"), "#!/bin/sh\necho redis-server\n").unwrap();
    // Returns what scripts/test says, if it has to install these packages as well. It must fail.
    let run = |packages: &str, arguments: &[&str]| {
        let original = fs::read_to_string(Path::new(ROOT).join("scripts/test")).unwrap();
        let words = ["scripts/setup redis-server", &format!("scripts/setup {packages} redis-server")];
        fs::write(project.join("scripts/test"), original.replace(words[0], words[1])).unwrap();
        let mut command = Command::new("scripts/test");
        for variable in ["CARGO_TARGET_DIR", "EVERYWHERE", "LIBRARIES", "REQUIRE_ALL", "SERVER"] {
            command.env_remove(variable);
        }
        command.args(arguments).current_dir(project).env("APT_CONFIG", project.join("apt/settings"));
        command.env("PATH", format!("{}/bin:{}", project.display(), std::env::var("PATH").unwrap()));
        let output = command.output().unwrap();
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(!output.status.success(), "{said}");
        said
    };

    // Folders of a run that was broken off, and of this one.
    let [dead, alive] = [u32::MAX, std::process::id()]
        .map(|process| [".tmpA", "app-A", "server-A"].map(|name| project.join(format!("target/tmp/{name}.{process}"))));
    for folder in dead.iter().chain(&alive) {
        fs::create_dir_all(folder).unwrap();
    }
    let said = run("cell-never-was", &[]);
    assert!(!dead.iter().any(|folder| folder.exists()) && alive.iter().all(|folder| folder.exists()));
    assert!(said.contains("1 setup: missing: cell-never-was"), "{said}");
    assert!(said.contains("setup: 1 passed, 0 failed\n"), "{said}");
    assert!(said.contains("examples: 0 passed, 1 failed, 1 left out, test_two.py::test_that_fails\n"), "{said}");
    assert!(!said.contains("the disk is full"), "{said}");
    let said = run("cell-never-was", &["tests/examples/test_two.py", "-k", "fails"]);
    assert!(said.contains("\n0 passed, 1 failed, 0 left out, test_two.py::test_that_fails\n"), "{said}");

    let df = "mkdir bin; printf '#!/bin/sh\\necho Avail; echo 3\\n' >bin/df; chmod +x bin/df";
    output(Command::new("sh").args(["-ec", df]).current_dir(project));
    let said = run("cell-never-was cell-gone", &[]);
    assert!(said.contains("setup: missing: cell-gone. apt-get could not install"), "{said}");
    assert!(!said.contains("examples:"), "{said}");
    assert!(said.contains("test: the disk is full, or nearly: 3 MB are free\n"), "{said}");
    // Without a list of packages, as without a network, nothing is known of any.
    fs::remove_file(project.join("apt/Packages")).unwrap();
    let said = run("cell-never-was", &[]);
    assert!(said.contains("setup: missing: cell-never-was. apt-get could not install"), "{said}");
}

#[test]
fn scripts_memcheck_runs_a_test_under_valgrind_and_finds_no_error() {
    needs!(EVERYWHERE);
    module();
    let mut memcheck = Command::new("scripts/memcheck");
    let said = output(memcheck.arg("reply::both_protocols").current_dir(ROOT).env_remove("SERVER"));
    assert!(said.ends_with("memcheck: 1 servers ran under valgrind\n"), "{said}");
}
