//! The examples in Python on servers of each kind: local, behind Sentinel, in a cluster, over TLS; and pipelines.

use std::net::TcpListener;
use std::process::Command;

use super::ANSWERS;
use crate::support::cluster::start_node;
use crate::support::endpoint::losing;
use crate::support::examples::Example;
use crate::support::examples::Libraries::Python;
use crate::support::pages::ROOT;
use crate::support::programs::output_and_errors;
use crate::support::traffic::side_by_side;
use crate::support::{Process, Server, free_port, new_folder, run, wait_for};

/// The output of each example's own program, and its log of an error that is a mistake in the settings.
#[test]
#[ignore = "slow: other languages"]
fn redis_py_decides_and_logs_a_mistake_as_an_error() {
    let files = ["redis_py.py", "redis_asyncio.py"];
    side_by_side(files.into_iter().flat_map(|file| Python("redis").run(file)), |example| {
        let example = example.with("TIMEOUT", "3600");
        assert_eq!(example.output(Server::start().port), ANSWERS, "{example:?}");
        for (cause, logged) in [
            ("RPUSH example:user123 x", "WRONGTYPE"),
            ("ACL SETUSER default -cl.throttle", "permission"),
            ("CONFIG SET requirepass secret", "uthentication required"),
        ] {
            let server = Server::start();
            run::<()>(&mut server.connect(), cause).unwrap();
            let said = output_and_errors(&mut example.with("FAIL", "closed").command(server.port));
            let error = said.strip_prefix(&"503 Retry-After: 1\n".repeat(5));
            let is_one = |error: &str| error.contains(logged) && error.lines().count() == 1;
            assert!(error.is_some_and(is_one), "{example:?}: {cause}: {said}");
        }
    });
}

#[test]
#[ignore = "slow: other languages"]
fn a_pipeline_makes_each_call_once_and_an_error_is_no_allowed_call() {
    for example in Python("redis").run("pipeline.py") {
        let (server, mut connection) = Server::start().connected();
        assert_eq!(example.output(server.port), "allowed: 1000 of 1000\n", "{example:?}");
        assert_eq!(run::<Vec<i64>>(&mut connection, "CL.LOOK user:7 2 1 60").unwrap()[2], 2, "{example:?}");
        run::<()>(&mut connection, "DEL user:7").unwrap();
        run::<()>(&mut connection, "RPUSH user:7 x").unwrap();
        assert_eq!(example.output(server.port), "allowed: 999 of 1000\n", "{example:?}");
    }
}

#[test]
#[ignore = "slow: other languages"]
fn a_call_through_a_stuck_sentinel_fails_in_time() {
    for example in Python("redis").run("sentinel.py") {
        // The system accepts connections for a program that never reads them.
        let stuck = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let example = example.with("SENTINEL_PORT", &stuck.local_addr().unwrap().port().to_string());
        let mut process = Process::start(&mut example.command(0));
        let ended = wait_for("the program ends", || process.0.try_wait().unwrap());
        assert!(!ended.success(), "{example:?}: {ended:?}");
    }
}

/// The node announces a proxy's port as its own, and the proxy loses the answer to the first call. No setting keeps
/// Debian's redis-py 4.3.4 from repeating such a call in a cluster.
#[test]
#[ignore = "slow: other languages"]
fn a_call_in_a_cluster_that_gets_no_answer_takes_once_and_fails_in_time() {
    let is_debians = |example: &Example| format!("{example:?}").contains("/usr/bin/python3");
    for example in Python("redis").run("cluster.py").into_iter().filter(|example| !is_debians(example)) {
        let node = start_node();
        let proxy = losing(node.port, "CL.THROTTLE", 0, usize::MAX);
        let mut connection = node.connect();
        run::<()>(&mut connection, &format!("CONFIG SET cluster-announce-port {proxy}")).unwrap();
        let mut process = Process::start(&mut example.command(proxy));
        let success = wait_for("the program ends", || process.0.try_wait().unwrap()).success();
        let remaining = run::<[i64; 5]>(&mut connection, "CL.LOOK {user123}:minute 2 1 60").unwrap()[2];
        assert_eq!((remaining, success), (2, false), "{example:?}");
    }
}

/// The server has a certificate of the test's own, and a user with a password.
#[test]
#[ignore = "slow: other languages"]
fn redis_py_calls_a_server_with_a_password_over_tls_and_logs_a_wrong_password() {
    let folder = new_folder();
    let mut openssl = Command::new("openssl");
    openssl.args("req -x509 -nodes -newkey rsa:2048 -subj /CN=localhost -out server.crt -keyout server.key".split(' '));
    output_and_errors(openssl.args(["-addext", "subjectAltName=IP:127.0.0.1"]).current_dir(&folder));
    let [certificate, key] = ["crt", "key"].map(|kind| format!("{}/server.{kind}", folder.path().display()));
    let port = free_port().to_string();
    let files = ["--tls-cert-file", &certificate, "--tls-key-file", &key, "--tls-ca-cert-file", &certificate];
    let server = Server::start_with(&[&["--tls-port", &port, "--tls-auth-clients", "no"], &files[..]].concat());
    let user = "ACL SETUSER limits on >secret ~* +ping +cl.throttle +hello +client";
    run::<()>(&mut server.connect(), user).unwrap();
    for (password, answers) in [("secret", "200 200\n"), ("wrong", "503 503\n")] {
        let words = format!("../../tests/once/clients/elsewhere.py 127.0.0.1 {port} {password} {certificate}");
        for example in Python("redis").run(&words) {
            let said = output_and_errors(&mut example.command(0));
            assert!(said.starts_with(answers), "{example:?}: {said}");
            assert_eq!(said.contains("invalid username-password pair"), password == "wrong", "{example:?}: {said}");
        }
    }
}

#[test]
#[ignore = "slow: other languages"]
fn an_applications_tests_have_a_server_of_their_own() {
    for example in Python("redis").run("own_tests.py") {
        let run = [ROOT, "scripts/run"].join("/");
        let said = output_and_errors(&mut example.with("RUN", &run).command(0));
        assert!(said.contains("Ran 2 tests"), "{said}");
    }
}
