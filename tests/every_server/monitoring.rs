//! Runs the commands of docs/monitoring.md on each server: the exporter's script, the health check, and the count of
//! the most limited keys. tests/project/prometheus.rs tests the exporter and the alerts.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use redis::Value;

use crate::support::cluster::meet;
use crate::support::needs::{REDIS_CLI, needs};
use crate::support::pages::{block, text_of, typed};
use crate::support::replication::replicate;
use crate::support::{COMMANDS, Server, difference, run, run_all, throttle, wait_until};

/// The exporter's user has only the permissions that docs/monitoring.md gives it.
#[test]
fn the_exporters_user_reads_every_count_with_the_script() {
    let (_server, mut connection) = Server::start().connected();
    for call in ["CL.THROTTLE key 0 1 60", "CL.THROTTLE key 0 1 60", "CL.MTHROTTLE key 0 1 0 1"] {
        let _ = run::<Value>(&mut connection, call);
    }
    // CONFIG RESETSTAT does not reset the module's counts.
    run_all(&mut connection, &["CONFIG RESETSTAT", &typed("ACL SETUSER exporter"), "AUTH exporter secret"]);
    run_all(&mut connection, &["CLIENT SETNAME exporter"]);
    let script = text_of("docs/monitoring/limits.lua");
    let counts: BTreeMap<String, u64> = redis::cmd("EVAL").arg(script).arg("0").query(&mut connection).unwrap();
    let mut expected = BTreeMap::new();
    for command in &COMMANDS {
        for outcome in ["allowed", "limited", "errors"] {
            let name = format!("{}_{outcome}", command.name.strip_prefix("cl.").unwrap());
            let count = ["throttle_allowed", "throttle_limited", "mthrottle_errors"].contains(&name.as_str());
            expected.insert(name, u64::from(count));
        }
    }
    assert_eq!(difference(&counts, &expected), BTreeMap::new(), "the script's counts differ from the expected ones");
}

/// In docs/monitoring.md, the command counts for ten seconds. Here, it counts until the server has sent all events.
#[test]
fn the_keys_that_are_limited_most_are_counted() {
    needs!(REDIS_CLI);
    let server = Server::start_with(&["--notify-keyspace-events", "Ed"]);
    let line = block("sh", "cl.limited").replace("timeout 10 ", "timeout 600 ");
    let line = line.replace("redis-cli", &format!("redis-cli -p {}", server.port));
    let counting = Command::new("sh").args(["-c", &line]).stdout(Stdio::piped()).spawn().unwrap();
    let mut connection = server.connect();
    wait_until("redis-cli subscribes", || run::<u64>(&mut connection, "PUBSUB NUMPAT").unwrap() == 1);
    for key in ["most", "some", "most", "few", "most", "some", "most", "few", "most", "some"] {
        throttle(&mut connection, &format!("{key} 0 1 3600"));
    }
    wait_until("all events are sent", || {
        run::<String>(&mut connection, "CLIENT LIST TYPE pubsub").unwrap().contains(" omem=0 ")
    });
    run::<()>(&mut connection, "CLIENT KILL TYPE pubsub").unwrap();
    // The largest count comes first. Each key's first call is not counted, because it is allowed.
    let counted = String::from_utf8(counting.wait_with_output().unwrap().stdout).unwrap();
    let counted: Vec<_> = counted.lines().map(str::trim).collect();
    let line = |(count, key)| format!("{count} \"__keyevent@0__:cl.limited\",\"{key}\"");
    assert_eq!(counted, [(4, "most"), (2, "some"), (1, "few")].map(line));
}

/// docs/compose.yaml and docs/kubernetes/limits.yaml must have the same health check as docs/monitoring.md.
#[test]
#[ignore = "slow: restarts"]
fn the_health_check_passes_where_the_module_answers_and_fails_elsewhere() {
    let line = block("sh", "CL.LOOK health");
    for (file, shell) in [("compose.yaml", r#""CMD-SHELL", "#), ("kubernetes/limits.yaml", r#"command: ["sh", "-c", "#)]
    {
        assert!(
            text_of(&format!("docs/{file}")).contains(&format!("{shell}\"{line}\"]")),
            "{file} has another health check"
        );
    }
    let healthy = |server: &Server| {
        let line = line.replace("redis-cli", &format!("redis-cli -p {}", server.port));
        let mut check = Command::new("sh");
        check.args(["-c", &line]).env("REDISCLI_AUTH", "secret").stderr(Stdio::null()).status().unwrap().success()
    };
    // A replica and a server at maxmemory are healthy, although they answer only CL.LOOK.
    let [server, replica] = [(); 2].map(|()| Server::start());
    let full = Server::start_with(&["--maxmemory", "1"]);
    let locked = Server::start_with(&["--requirepass", "secret"]);
    replicate(&replica, &server);
    assert!([&server, &replica, &full, &locked].into_iter().all(healthy));
    assert!(!run::<bool>(&mut server.connect(), "EXISTS health").unwrap());
    // A node stays healthy if no node has the key's slot, or if another node has it.
    let nodes = [(); 2].map(|()| Server::start_with(&["--cluster-enabled", "yes"]));
    assert!(nodes.iter().all(healthy), "a node is unhealthy if the cluster is down");
    meet(&nodes);
    assert!(nodes.iter().all(healthy), "a node is unhealthy if another node has the slot");
    let mut bare = [&[][..], &["--cluster-enabled", "yes"]].map(Server::start_bare);
    assert!(!bare.iter().any(healthy), "a server without the module is healthy");
    bare[0].kill();
    // Wait, because a server under valgrind still answers while it exits.
    wait_until("the health check fails without a server", || !healthy(&bare[0]));
}
