//! Follows the steps under "Upgrade without losing a limit" in docs/operating.md, and makes calls between them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use redis::{Client, Value};

use crate::support::aof::AOF;
use crate::support::needs::{FAST, REDIS_CLI, needs};
use crate::support::pages::{section, text_of};
use crate::support::programs::output;
use crate::support::replication::replicate;
use crate::support::{
    Process, Server, compiled, ends_with_the_test, executable, free_port, module, new_folder, run, throttle, wait_until,
};

/// A limiter of 1,000 tokens, none of which comes back during the test.
const LIMITER: &str = "key 999 1 3600";

/// A server and its settings file.
type Member = (Server, PathBuf);

/// The first upgrade is from a stand-in for brandur's redis-cell, and a Sentinel promotes the replica. The second goes
/// back to the stand-in without a Sentinel.
#[test]
#[ignore = "slow: Sentinel waits"]
fn an_upgrade_by_the_steps_of_the_page_loses_no_limit() {
    needs!(FAST);
    needs!(REDIS_CLI);
    let folder = new_folder();
    let old = folder.path().join("libredis_cell.so");
    fs::copy(compiled("redis_cell"), &old).unwrap();
    let [mut one, mut two] = ["one.conf", "two.conf"].map(|name| {
        let settings = folder.path().join(name);
        fs::write(&settings, format!("loadmodule {}\n", old.display())).unwrap();
        (Server::start_from(&settings, &AOF), settings)
    });
    replicate(&two.0, &one.0);
    let (sentinel, port) = start_sentinel(folder.path(), &one.0, &two.0, "");
    let mut allowed = upgrade(&mut one, &mut two, Some(port), module(), "ver=10000");
    let mut client = Client::open(format!("redis://127.0.0.1:{port}/")).unwrap().get_connection().unwrap();
    let (_, found): (String, u16) = run(&mut client, "SENTINEL get-master-addr-by-name limits").unwrap();
    assert_eq!(found, two.0.port, "the Sentinel sends clients to another server");
    drop(sentinel);
    allowed += upgrade(&mut two, &mut one, None, old.to_str().unwrap(), "ver=1");
    let remaining = throttle(&mut one.0.connect(), &format!("{LIMITER} 0"))[2];
    assert_eq!(allowed + remaining, 1000, "{allowed} calls were allowed, and {remaining} tokens remain");
}

/// Starts a Sentinel with the additional settings `more`, and waits until it knows the replica. Returns the Sentinel's
/// process and port.
pub fn start_sentinel(folder: &Path, primary: &Server, replica: &Server, more: &str) -> (Process, u16) {
    let (port, file) = (free_port(), folder.join("sentinel.conf"));
    let settings =
        format!("sentinel monitor limits 127.0.0.1 {} 1\nsentinel down-after-milliseconds limits 5000", primary.port);
    fs::write(&file, format!("port {port}\ndir {}\n{settings}\n{more}\n", folder.display())).unwrap();
    let mut command = ends_with_the_test(executable());
    let process = Process::start(command.arg(&file).arg("--sentinel").env("LC_ALL", "C").stdout(Stdio::null()));
    let client = Client::open(format!("redis://127.0.0.1:{port}/")).unwrap();
    wait_until("Sentinel knows the replica", || {
        let Ok(mut connection) = client.get_connection() else { return false };
        // Make Sentinel check its servers more often. Redis 6.2 has no such setting.
        let _ = run::<()>(&mut connection, "SENTINEL DEBUG info-period 500");
        let replicas = run::<Value>(&mut connection, "SENTINEL replicas limits");
        replicas.is_ok_and(|replicas| format!("{replicas:?}").contains(&replica.port.to_string()))
    });
    (process, port)
}

/// Follows the steps in docs/operating.md. Before each step, calls the limiter on both servers. Returns how many
/// calls were allowed.
fn upgrade(primary: &mut Member, replica: &mut Member, sentinel: Option<u16>, library: &str, version: &str) -> i64 {
    let page = text_of("docs/operating.md");
    let steps = section(&page, "## Upgrade without losing a limit").split("```sh\n").skip(1);
    let steps: Vec<_> = steps.map(|step| step.split("```").next().unwrap()).collect();
    let [_install, restart, wait, stop_writes, by_sentinel, by_hand, demote, rewrite_aof] = steps[..] else {
        panic!("the page does not have eight steps: {steps:#?}")
    };
    let fail_over = if sentinel.is_some() { by_sentinel } else { by_hand };
    let [restart_other, wait_for_other] = [restart, wait].map(|step| step.replace("10.0.0.2", "10.0.0.1"));

    // The page's addresses and paths, each followed by what replaces it in this test.
    let sentinel = format!("-p {}", sentinel.unwrap_or_default());
    let [one, two] = [&primary, &replica].map(|member| member.0.port.to_string());
    let here = [
        ("10.0.0.2 6379", format!("127.0.0.1 {two}")),
        ("-h ", "-p ".into()),
        ("-p 26379", sentinel),
        ("10.0.0.1", one),
        ("10.0.0.2", two),
        ("/usr/lib/redis/modules/libredis_cell.so", library.into()),
        ("ver=10000", version.into()),
        ("sudo systemctl restart redis-server", "".into()),
        ("sudo ", "".into()),
    ];
    let mut allowed = 0;
    for step in [restart, wait, stop_writes, fail_over, demote, &restart_other, &wait_for_other, rewrite_aof] {
        for (server, _) in [&primary, &replica] {
            // A replica refuses the call, and so does the primary after the step that stops writes.
            let reply = run::<[i64; 5]>(&mut server.connect(), &format!("CL.THROTTLE {LIMITER}"));
            allowed += reply.map_or(0, |reply| 1 - reply[0]);
        }
        let (server, settings) = if step.contains("-h 10.0.0.1") { &mut *primary } else { &mut *replica };
        let script = here.iter().fold(step.to_string(), |step, (page, here)| step.replace(page, here));
        let script = script.replace("/etc/redis/redis.conf", settings.to_str().unwrap());
        // Allow ten minutes: a Sentinel that gets no CPU time for two seconds enters TILT mode for half a minute.
        let printed = output(Command::new("timeout").args(["10m", "sh", "-exc", &script]));
        for (_, expected) in script.lines().filter_map(|line| line.split_once("   # ")) {
            assert!(printed.lines().any(|line| line == expected), "{expected:?} is missing after {script}\n{printed}");
        }
        if step.contains("systemctl restart") {
            // SHUTDOWN closes the connection without a reply. Start the server again, as systemd would.
            let _ = run::<()>(&mut server.connect(), "SHUTDOWN");
            server.restart();
        }
    }
    allowed
}
