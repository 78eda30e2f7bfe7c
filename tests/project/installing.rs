//! Checks what docs/platforms.md says about loading the library: a second instance, and a library for another
//! processor.

use std::fs;
use std::path::Path;
use std::process::Command;

use redis::Client;

use crate::support::needs::leave_out;
use crate::support::pages::{section, text_of};
use crate::support::programs::output;
use crate::support::{
    MODULES, Process, Server, assert_reply, ends_with_the_test, free_port, module, new_folder, run, wait_until,
};

/// Runs the commands from docs/platforms.md in a folder, and then the command in Debian's systemd unit.
#[test]
fn the_second_instance_on_the_page_starts_with_the_module() {
    const UNIT: &str = "/usr/lib/systemd/system/redis-server@.service";
    let Ok(unit) = fs::read_to_string(UNIT) else {
        leave_out("Debian's redis-server is not installed");
        return;
    };
    let (folder, port) = (new_folder(), free_port());
    let root = folder.path().display();
    let page = text_of("docs/platforms.md");
    let lines = section(&page, "## Loading").split("\n### A second instance\n").nth(1).unwrap();
    let lines = lines.lines().filter_map(|line| line.strip_prefix("    ")).take_while(|line| !line.contains("chown"));
    let script = lines.collect::<Vec<_>>().join("\n").replace("sudo ", "").replace("-o redis -g redis ", "");
    let script = script.replace(MODULES, "MODULES").replace("6380", &port.to_string());
    let script = script.replace("/etc/", &format!("{root}/etc/")).replace("/var/", &format!("{root}/var/"));
    let script = script.replace("MODULES/libredis_cell.so", module());
    output(Command::new("sh").args(["-ec", &format!("mkdir -p {root}/etc/redis {root}/var/log/redis\n{script}")]));

    let (_, command) = unit.split_once("\nExecStart=").unwrap();
    let command = command.lines().next().unwrap().replace("%i", "limits").replace("/etc/", &format!("{root}/etc/"));
    let _server = Process::start(ends_with_the_test("sh").args(["-c", &format!("LC_ALL=C exec {command}")]));
    let client = Client::open(format!("redis://127.0.0.1:{port}/")).unwrap();
    wait_until("the instance starts", || client.get_connection().is_ok());
    let mut connection = client.get_connection().unwrap();
    assert_reply(&mut connection, "CL.THROTTLE key 4 1 60", &[0, 5, 4]);
    assert!(Path::new(&format!("{root}/var/lib/redis/limits/appendonlydir")).exists());
    assert_eq!(run::<(String, String)>(&mut connection, "CONFIG GET maxmemory").unwrap().1, "209715200");
}

/// Writes another processor's number into the library's header. 62 is x86-64, and 183 is 64-bit ARM.
#[test]
fn a_library_for_another_processor_is_logged_as_a_missing_file() {
    let folder = new_folder();
    let library = folder.path().join("libredis_cell.so");
    let mut bytes = fs::read(module()).unwrap();
    bytes[18] = if bytes[18] == 62 { 183 } else { 62 };
    fs::copy(module(), &library).unwrap();
    fs::write(&library, bytes).unwrap();
    let log = Server::refused(&["--loadmodule", library.to_str().unwrap()]);
    assert!(log.contains("No such file"), "the log does not say that the file is missing: {log}");
}
