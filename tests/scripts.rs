//! What a newcomer types first.

use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::support::{eventually, free_port, module, run, throttle};

/// The scripts find bash and sed, and nothing that could install, fetch, build or start anything.
#[test]
fn help_only_shows_the_usage_and_an_unknown_option_is_an_error() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tools = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("tools-{}", std::process::id()));
    std::fs::create_dir_all(&tools).unwrap();
    for tool in ["bash", "sed"] {
        std::os::unix::fs::symlink(Path::new("/bin").join(tool), tools.join(tool)).unwrap();
    }
    let call = |script: &str, option: &str| {
        let mut command = Command::new(root.join("scripts").join(script));
        command.arg(option).env("PATH", &tools).output().unwrap()
    };
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    for script in ["bench", "memcheck", "package", "run", "servers", "setup", "test", "zig"] {
        let help = call(script, "--help");
        let usage = text(help.stdout);
        assert_eq!((help.status.code(), text(help.stderr).as_str()), (Some(0), ""), "{script}");
        assert!(usage.contains(&format!("scripts/{script}")), "{script}: {usage}");
        // Of scripts/run, all else is the server's.
        if script != "run" {
            let unknown = call(script, "--foo");
            assert_eq!((unknown.status.code(), unknown.stdout), (Some(2), vec![]), "{script}");
            assert_eq!(text(unknown.stderr), usage, "{script}");
        }
    }
    std::fs::remove_dir_all(tools).unwrap();
}

/// With two servers, on one of which a test fails, and without anything that scripts/test would install or start.
#[test]
fn scripts_test_ends_with_what_passed_failed_and_was_left_out() {
    let tools = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("test-{}", std::process::id()));
    let tool = |name: &str, script: &str| {
        let path = tools.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        path.into_os_string().into_string().unwrap()
    };
    let old = tool("old/redis-server", "echo Redis server v=6.2.14 sha=0");
    let new = tool("new/valkey-server", "echo Valkey server v=9.0.1 sha=0");
    tool("dpkg-query", "echo installed");
    tool("shellcheck", "");
    tool(
        "cargo",
        "case \"$SERVER $*\" in
            *old*--skip\\ contexts::functions_call_it_like_lua*)
                printf 'failures:\\n---- a::b stdout ----\\nfailures:\\n    a::b\\n    a::c\\n\\n'
                echo 'test result: FAILED. 5 passed; 2 failed; 0 ignored; 0 measured; 1 filtered out'
                exit 1 ;;
            *old*|*functions*) exit 1 ;;
            *' test '*) echo 'test result: ok. 7 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out' ;;
        esac",
    );
    let run = |servers: &str| {
        let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap());
        let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/test"));
        let output = command.env("PATH", path).env("SERVERS", servers).env_remove("SERVER").output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };

    let (code, said) = run(&format!("{old} {new}"));
    assert_eq!(code, Some(1), "{said}");
    let line = |start: &str| said.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{said}"));
    let old_line = line("Redis 6.2.14: 5 passed");
    assert!(old_line.starts_with("Redis 6.2.14: 5 passed, failed: a::b a::c, left out: "), "{said}");
    assert!(old_line.contains("contexts::functions_call_it_like_lua (needs functions, Redis 7)"), "{said}");
    let new_line = line("Valkey 9.0.1: 7 passed, left out: ");
    assert!(new_line.contains("scripts:: (look at no server, run with the first); cost::"), "{said}");
    // Unit tests and two servers; shellcheck, format, clippy, the oldest Rust, the release build, the servers.
    assert!(said.ends_with("\n25 passed, 2 failed\n"), "{said}");

    let (code, said) = run(&new);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.ends_with("\n20 passed, 0 failed\n"), "{said}");

    let (code, said) = run(&format!("{new} /nowhere"));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.ends_with("\n19 passed, 1 failed\n"), "{said}");
    std::fs::remove_dir_all(tools).unwrap();
}

/// Ctrl-C ends it, at the latest when the test ends.
struct Running(Child);

impl Running {
    fn interrupt(&mut self) -> ExitStatus {
        // The shell's own, as a small system has no program of that name.
        Command::new("sh").args(["-c", &format!("kill -INT {}", self.0.id())]).status().unwrap();
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

#[test]
fn what_is_left_out_on_some_server_is_a_test() {
    let tests = Command::new(std::env::current_exe().unwrap()).arg("--list").output().unwrap();
    let tests = String::from_utf8(tests.stdout).unwrap();
    for line in include_str!("needs.txt").lines().filter(|line| !line.starts_with('#')) {
        let name = line.split_whitespace().next().unwrap();
        assert!(tests.contains(&format!("{name}: test\n")), "{name}");
    }
}

/// On `redis-server`, whichever server the other tests run on.
#[test]
fn scripts_run_leaves_a_server_answering_until_ctrl_c_and_nothing_behind() {
    module();
    let port = free_port();
    let temporary = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("run-{port}"));
    std::fs::create_dir_all(&temporary).unwrap();
    let script = || {
        // Ctrl-C would be ignored if it is where the tests run, as in a shell's background.
        let mut command = Command::new("env");
        command
            .args(["--default-signal=INT", "scripts/run"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .env("PORT", port.to_string())
            .env("TMPDIR", &temporary);
        command
    };
    let mut process = Running(script().args(["--maxmemory", "123mb"]).stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(process.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let text: Vec<_> = lines.by_ref().take_while(|line| !line.contains("Ctrl-C ends the server")).collect();
    let text = text.join("\n");
    assert!(text.contains(&format!("CL.THROTTLE is ready at 127.0.0.1:{port}")), "{text}");
    let first = "1) (integer) 0\n2) (integer) 3\n3) (integer) 2\n4) (integer) -1\n5) (integer) 60";
    // And how long to wait, which is a second less on a slow machine.
    let limited = "1) (integer) 1\n2) (integer) 3\n3) (integer) 0\n";
    assert!(text.contains(first) && text.contains(limited), "{text}");

    let client = redis::Client::open(format!("redis://127.0.0.1:{port}/")).unwrap();
    let mut connection = client.get_connection().unwrap();
    // The README's first call is what the reader types next.
    assert_eq!(throttle(&mut connection, "user123 15 30 60 1"), [0, 16, 15, -1, 2]);
    let (_, limit): (String, String) = run(&mut connection, "CONFIG GET maxmemory").unwrap();
    assert_eq!(limit, (123 << 20).to_string());
    let (_, save): (String, String) = run(&mut connection, "CONFIG GET save").unwrap();
    assert_eq!(save, "");

    let second = script().output().unwrap();
    assert!(!second.status.success());
    assert!(String::from_utf8(second.stderr).unwrap().contains(&format!("port {port} is taken")));

    assert!(process.interrupt().success());
    let gone = eventually(Duration::from_secs(10), || client.get_connection().is_err().then_some(()));
    assert!(gone.is_some(), "the server stayed");
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0, "files stayed");
    std::fs::remove_dir(temporary).unwrap();
}

#[test]
fn scripts_run_says_ready_where_the_settings_put_the_server() {
    module();
    let socket = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.socket", std::process::id()));
    let port = free_port().to_string();
    let calls = [
        (vec!["--port", &port, "--requirepass", "secret"], format!("127.0.0.1:{port}")),
        (vec!["--port", "0", "--unixsocket", socket.to_str().unwrap()], socket.display().to_string()),
    ];
    for (settings, place) in calls {
        let process = Command::new("env")
            .args(["--default-signal=INT", "scripts/run"])
            .args(&settings)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .stdout(Stdio::piped())
            .spawn();
        let mut process = Running(process.unwrap());
        let lines = BufReader::new(process.0.stdout.take().unwrap()).lines().map(Result::unwrap);
        let text: Vec<_> = lines.take_while(|line| !line.contains("Ctrl-C ends the server")).collect();
        let text = text.join("\n");
        assert!(text.contains(&format!("CL.THROTTLE is ready at {place}")), "{text}");
        assert!(text.contains("1) (integer) 1\n2) (integer) 3\n3) (integer) 0\n"), "{text}");
        assert!(process.interrupt().success());
    }
    for port in ["x", "65536", ""] {
        let output = Command::new("scripts/run")
            .args(["--port", port])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(error, format!("run: port {port} is not a number from 0 to 65535\n"));
    }
}
