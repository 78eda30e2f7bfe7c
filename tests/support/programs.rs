//! Runs programs for tests, and sends signals to processes.

use std::path::Path;
use std::process::Command;

use super::Server;
use super::pages::ROOT;

/// Returns the command that runs a program in docs/, or at an absolute path, with Debian's own Python.
pub fn python(program: &str, server: &Server) -> Command {
    let mut command = Command::new("/usr/bin/python3");
    command.arg("-B").arg(Path::new(ROOT).join("docs").join(program));
    command.env("REDIS_URL", format!("redis://127.0.0.1:{}", server.port));
    command.env("REDIS_TIMEOUT", "60");
    command
}

/// Runs a program, which must succeed. Returns its output.
pub fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let [said, errors] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert!(output.status.success(), "{command:?}: {}\n{said}\n{errors}", output.status);
    said
}

/// Sends a signal to a process. Uses the shell's built-in `kill`, because a minimal system may lack the program `kill`.
pub fn signal(process: u32, name: &str) {
    let status = Command::new("sh").args(["-c", &format!("kill -{name} {process}")]).status();
    assert!(status.unwrap().success(), "process {process} did not get SIG{name}");
}
