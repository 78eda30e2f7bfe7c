//! What a newcomer types first.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::support::needs::{SCRIPTS_TEST, needs};
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
fn each_name_in_needs_and_slow_is_that_of_a_test() {
    let tests = Command::new(std::env::current_exe().unwrap()).arg("--list").output().unwrap();
    let tests = String::from_utf8(tests.stdout).unwrap();
    let names = |list: &'static str| {
        let lines = list.lines().filter(|line| !line.starts_with('#'));
        lines.map(|line| line.split_whitespace().next().unwrap())
    };
    for name in names(include_str!("needs.txt")) {
        assert!(tests.contains(&format!("{name}: test\n")), "{name}");
    }
    // Of several, how they begin.
    for name in names(include_str!("slow.txt")) {
        assert!(tests.lines().any(|test| test.starts_with(name)), "{name}");
    }
}

/// On `redis-server`, whichever server the other tests run on.
#[test]
fn scripts_run_leaves_a_server_answering_until_ctrl_c_and_nothing_behind() {
    needs!(SCRIPTS_TEST);
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
    needs!(SCRIPTS_TEST);
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
