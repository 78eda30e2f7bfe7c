//! What a call costs.
//!
//! In time: instructions inside the server's function `call`, counted by callgrind, in units of the server's own
//! `SET key value PX ms`. Unlike seconds they are the same on every run, to one in a hundred: the server's hash tables
//! are laid out by chance.
//!
//! In memory: bytes of a key.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command};

use redis::{Connection, Pipeline, Value};

use crate::support::{Server, executable, module, run};

/// Each with a key of 13 bytes, and with the 19 digits of a state in the `SET`.
const KEYS: u32 = 500;
const SET: &str = "SET plain:KEY 1800000000000000000 PX 1000000";
const ALLOWED: &str = "CL.THROTTLE allow:KEY 15 30 60";
const FILL: &str = "CL.THROTTLE limit:KEY 15 30 600 16";
const LIMITED: &str = "CL.THROTTLE limit:KEY 15 30 600";
const TWO: &str = "CL.MTHROTTLE one:KEY 15 30 60 1 two:KEY 15 30 60 1";
const FOUR: &str =
    "CL.MTHROTTLE one:KEY 15 30 60 1 two:KEY 15 30 60 1 six:KEY 15 30 60 1 ten:KEY 15 30 60 1";
const NEW: &str = "CL.THROTTLE fresh:KEY 15 30 60";

#[test]
fn a_call_costs_little_more_than_a_set() {
    let version = Command::new(executable()).arg("--version").output();
    let version = String::from_utf8(version.unwrap().stdout).unwrap();
    if !version.contains("Redis server v=7.0.") {
        println!("skipped: the figures are for Redis 7.0, this is {version}");
        return;
    }
    let mut callgrind = Callgrind::start();

    // So many keys that the server's tables neither grow nor shrink while they are counted; and often enough that they
    // have been rearranged before.
    callgrind.count("SET stays:KEY 1 PX 1000000", 1);
    callgrind.count("SET other:KEY 1 PX 1000000", 1);
    for command in [SET, ALLOWED, FILL, TWO, FOUR] {
        callgrind.count(command, 4);
    }

    let set = callgrind.count(SET, 2);
    let allowed = callgrind.count(ALLOWED, 2) / set;
    let limited = callgrind.count(LIMITED, 2) / set;
    let new = callgrind.count(NEW, 1) / set;
    let two = callgrind.count(TWO, 2) / set;
    let further = (callgrind.count(FOUR, 2) / set - two) / 2.0;
    let figures = format!(
        "SET PX {set:.0} instructions; allowed {allowed:.3} of that, limited {limited:.3}, new key {new:.3}; \
         two limits in one call {two:.3}, each further one {further:.3}"
    );
    println!("{figures}");

    // What was reached, 1.125, 0.53 and 1.34, and 5% more.
    assert!(allowed < 1.18, "{figures}");
    assert!(limited < 0.557, "{figures}");
    assert!(new < 1.405, "{figures}");
    assert!(further < allowed, "{figures}");
}

/// A native string of 19 bytes that is not an integer takes as much. What the server then gives to a string that is
/// rewritten in place depends on the server: nothing, or its header of 16 bytes.
#[test]
fn a_new_key_is_as_small_as_a_string_and_a_rewritten_one_hardly_larger() {
    let server = Server::start();
    let mut connection = server.connect();
    let mut bytes = |name: &str| -> i64 {
        run(&mut connection, &format!("MEMORY USAGE {name}:0000000")).unwrap()
    };
    let mut calls = server.connect();
    run::<()>(
        &mut calls,
        "SET plain:0000000 180000000000000000x PX 1000000",
    )
    .unwrap();
    let plain = bytes("plain");
    run::<Value>(&mut calls, "CL.THROTTLE fresh:0000000 15 30 60").unwrap();
    assert_eq!(bytes("fresh"), plain);
    run::<Value>(&mut calls, "CL.THROTTLE fresh:0000000 15 30 60").unwrap();
    let rewritten = bytes("fresh");
    assert!(rewritten <= plain + 16, "{rewritten} bytes, was {plain}");
}

/// A server under callgrind.
struct Callgrind {
    connection: Connection,
    server: Server,
    /// Where callgrind writes.
    folder: PathBuf,
    files: u32,
}

impl Callgrind {
    fn start() -> Self {
        assert!(
            Command::new("valgrind").arg("--version").output().is_ok(),
            "valgrind is not installed: run scripts/setup valgrind"
        );
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cost-{}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        // Each TIME makes callgrind write a file and count from 0 again.
        let script = format!(
            "#!/bin/sh\nexec valgrind --tool=callgrind --trace-children=yes --collect-atstart=no --toggle-collect=call \
             --dump-before=timeCommand '--callgrind-out-file={}/counts' '{}' \"$@\"\n",
            folder.display(),
            executable().display()
        );
        let executable = folder.join("server");
        fs::write(&executable, script).unwrap();
        fs::set_permissions(&executable, fs::Permissions::from_mode(0o755)).unwrap();
        let module = module();
        let module = ["--loadmodule", module.to_str().unwrap()];
        let server = Server::start_executable(
            &executable,
            &[&module[..], &["--slowlog-log-slower-than", "-1"]].concat(),
        );
        Self {
            connection: server.connect(),
            server,
            folder,
            files: 0,
        }
    }

    /// Instructions per call of a command, on each of the keys in so many rounds.
    fn count(&mut self, command: &str, rounds: u32) -> f64 {
        self.instructions();
        for _ in 0..rounds {
            let mut pipeline = Pipeline::new();
            for key in 0..KEYS {
                pipeline.add_command(crate::support::command(
                    &command.replace("KEY", &format!("{key:07}")),
                ));
            }
            pipeline.query::<Vec<Value>>(&mut self.connection).unwrap();
        }
        self.instructions() / f64::from(KEYS * rounds)
    }

    /// Instructions inside `call` since this was last asked.
    fn instructions(&mut self) -> f64 {
        run::<Value>(&mut self.connection, "TIME").unwrap();
        self.files += 1;
        let file = self.folder.join(format!("counts.{}", self.files));
        let text = fs::read_to_string(&file).unwrap_or_else(|error| {
            let there: Vec<_> = fs::read_dir(&self.folder).unwrap().collect();
            panic!(
                "{error}: {} of {there:?}\n{}",
                file.display(),
                self.server.log()
            )
        });
        let total = text.lines().find_map(|line| line.strip_prefix("totals: "));
        total.unwrap().parse().unwrap()
    }
}

impl Drop for Callgrind {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}
