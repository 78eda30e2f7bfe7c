//! Loading the module, and what the server then says of it.

use std::path::Path;
use std::process::{Command, Stdio};

use redis::Value;

use crate::support::{Server, is_redis_8, module, module_command, run, throttle};

#[test]
fn one_line_in_the_log_names_the_version() {
    let server = Server::start();
    let line = format!("redis-cell {} is ready", env!("CARGO_PKG_VERSION"));
    assert_eq!(server.log().matches(&line).count(), 1, "{}", server.log());
}

#[test]
fn the_server_lists_the_module_and_its_version() {
    let server = Server::start();
    let info: String = run(&mut server.connect(), "INFO modules").unwrap();
    let number: Vec<i64> = env!("CARGO_PKG_VERSION")
        .split('.')
        .map(|part| part.parse().unwrap())
        .collect();
    let number = number[0] * 10_000 + number[1] * 100 + number[2];
    assert!(
        info.contains(&format!("name=redis-cell,ver={number}")),
        "{info}"
    );
}

#[test]
fn the_command_is_registered_with_its_flags_and_its_key() {
    let server = Server::start();
    let Value::Array(info) = run(&mut server.connect(), "COMMAND INFO CL.THROTTLE").unwrap() else {
        panic!()
    };
    let Value::Array(command) = &info[0] else {
        panic!("{info:?}")
    };
    let Value::Array(flags) = &command[2] else {
        panic!("{info:?}")
    };
    let mut flags: Vec<String> = flags
        .iter()
        .map(|flag| redis::from_redis_value_ref(flag).unwrap())
        .collect();
    flags.sort();
    // "module" is the server's own addition on Redis 7 and later.
    flags.retain(|flag| flag != "module");
    assert_eq!(flags, ["denyoom", "fast", "write"]);
    assert_eq!(command[3..6], [1, 1, 1].map(Value::Int));
}

#[test]
fn it_can_be_unloaded_and_loaded_again_where_the_server_survives_that() {
    let server = Server::start_with(module_command());
    let mut connection = server.connect();
    throttle(&mut connection, "key 4 1 60 2");
    let unloaded = run::<()>(&mut connection, "MODULE UNLOAD redis-cell");
    if is_redis_8() {
        unloaded.unwrap_err();
        assert!(server.log().contains("stays loaded"), "{}", server.log());
        assert_eq!(throttle(&mut connection, "key 4 1 60"), [0, 5, 2, -1, 180]);
        return;
    }
    unloaded.unwrap();
    let error = run::<Value>(&mut connection, "CL.THROTTLE key 4 1 60").unwrap_err();
    assert!(error.to_string().contains("unknown command"), "{error}");
    let load = format!("MODULE LOAD {}", module().display());
    run::<()>(&mut connection, &load).unwrap();
    assert_eq!(throttle(&mut connection, "key 4 1 60"), [0, 5, 2, -1, 180]);
}

#[test]
fn loading_it_twice_is_refused_and_harmless() {
    let server = Server::start_with(module_command());
    let mut connection = server.connect();
    run::<()>(
        &mut connection,
        &format!("MODULE LOAD {}", module().display()),
    )
    .unwrap_err();
    assert_eq!(throttle(&mut connection, "key 4 1 60"), [0, 5, 4, -1, 60]);
}

#[test]
fn a_server_that_is_too_old_refuses_it_and_logs_what_it_needs() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/servers");
    let output = Command::new(script)
        .arg("--too-old")
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    let servers = String::from_utf8(output.stdout).unwrap();
    assert!(!servers.is_empty(), "there is no server that is too old");
    for executable in servers.lines() {
        let server = Server::start_executable(Path::new(executable), &[]);
        let mut connection = server.connect();
        let load = format!("MODULE LOAD {}", module().display());
        run::<()>(&mut connection, &load).unwrap_err();

        let log = server.log();
        let lines: Vec<&str> = log
            .lines()
            .filter_map(|line| line.split_once("<redis-cell> "))
            .map(|(_, line)| line)
            .collect();
        let needs = format!(
            "redis-cell {} needs Redis 6.2.2 or Valkey 7.2 or later: RedisModule_",
            env!("CARGO_PKG_VERSION")
        );
        assert!(
            lines.len() == 1 && lines[0].starts_with(&needs),
            "{lines:?}"
        );

        // The server goes on without it.
        let error = run::<Value>(&mut connection, "CL.THROTTLE key 4 1 60").unwrap_err();
        assert!(error.to_string().contains("unknown command"), "{error}");
    }
}
