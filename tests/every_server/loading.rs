//! Tests loading and unloading the module, and what the server logs about that.

use std::fs;
use std::process::Command;

use redis::Value;

use crate::support::compiling::load_with_unwritable_keys;
use crate::support::needs::{FORKS_TO_SAVE, REDIS_7, is_valkey, needs};
use crate::support::pages::text_of;
use crate::support::programs::output;
use crate::support::{Server, assert_reply, compiled, error_of, module, new_folder, run, throttle, transaction};

/// The module must set neither too many options nor too few. An unneeded option may be a promise that the module breaks
/// on a later server, and on Redis, the bits of Valkey's options may mean something else. But Valkey 9.2 saves without
/// a fork only if every module sets the option for such saves. INFO does not list all options, so shim.c, a library
/// between the module and the server, logs them.
#[test]
fn the_module_sets_the_options_that_it_needs() {
    let log = Server::start_bare(&["--loadmodule", compiled("shim"), module()]).log();
    let (_, numbers) = log.split_once("the server knows the options ").unwrap();
    let (known, set) = numbers.lines().next().unwrap().split_once(", the module sets ").unwrap();
    let [known, set] = [known, set].map(|number| number.parse::<i32>().unwrap());
    // valkeymodule.h names the bits.
    let (on_each, on_valkey) = (0b000_0110, 0b111_0000);
    let needed = if is_valkey() { on_each | on_valkey & known } else { on_each };
    assert_eq!(
        format!("{set:b}"),
        format!("{needed:b}"),
        "the options that the module sets, if the server knows {known:b}"
    );
}

#[test]
fn an_unload_is_refused_and_the_log_says_what_to_do_instead() {
    let (server, mut connection) = Server::start().connected();
    throttle(&mut connection, "key 4 1 60 2");
    run::<()>(&mut connection, "MODULE UNLOAD redis-cell").unwrap_err();
    let log = server.log();
    let line = log.lines().find(|line| line.contains("stays loaded"));
    assert!(line.is_some_and(|line| line.contains("estart")), "the log does not mention a restart: {log}");
    assert_reply(&mut connection, "CL.THROTTLE key 4 1 60", &[0, 5, 2]);
}

/// The module allows an unload only within the command that loads it. The server's clock alone does not identify that
/// command, because the clock stands still within a transaction.
#[test]
fn the_module_stays_loaded_after_load_and_unload_in_one_transaction() {
    let (server, mut connection) = Server::start_bare(&[]).connected();
    let load = format!("MODULE LOAD {}", module());
    transaction(&mut connection, &[&load, "PING", "MODULE UNLOAD redis-cell"]).unwrap_err();
    for line in ["ACL LIST", "CLIENT LIST"] {
        run::<Value>(&mut connection, line).unwrap_or_else(|error| panic!("{line}: {error}\n{}", server.log()));
    }
    assert_reply(&mut connection, "CL.THROTTLE key 4 1 60", &[0, 5, 4, -1, 60]);
}

#[test]
fn a_load_with_settings_or_arguments_is_refused_and_a_later_one_works() {
    let (server, mut connection) = Server::start_bare(&[]).connected();
    let library = module();
    let loads: [(&str, &[&[u8]]); 3] = [
        ("LOAD", &[b"max_burst", b"9"]),
        ("LOAD", &[b"\xff\x00\n%s%n"]),
        // Redis 6.2 has no module settings, and itself refuses MODULE LOADEX.
        ("LOADEX", &[b"CONFIG", b"redis-cell.foo", b"1"]),
    ];
    for (load, arguments) in loads {
        let mut command = redis::cmd("MODULE");
        let loaded = command.arg(load).arg(library).arg(arguments).query::<()>(&mut connection);
        assert!(loaded.is_err(), "{load} {:?} was not refused", arguments[0].escape_ascii());
        let error = error_of(&mut connection, "CL.THROTTLE key 4 1 60");
        assert!(error.contains("unknown command"), "{load} gets {loaded:?}, and a call {error}\n{}", server.log());
    }
    let is_named = |line: &str| line.contains("<redis-cell>") && line.contains("max_burst");
    assert!(server.log().lines().any(is_named), "no log line names the argument: {}", server.log());
    // To undo a load, MODULE LOADEX unloads the module. If the module refused this unload, the server would crash, or
    // keep a half-loaded module.
    let load = format!("MODULE LOADEX {library} CONFIG redis-cell.foo 1");
    transaction(&mut connection, &[&load, "SET other 1", &load]).unwrap_err();
    let list: String = run(&mut connection, "INFO modules").unwrap();
    assert!(!list.contains("redis-cell"), "the module is still loaded: {list}\n{}", server.log());
    run::<()>(&mut connection, &format!("MODULE LOAD {library}")).unwrap();
    assert_reply(&mut connection, "CL.THROTTLE key 4 1 60", &[0, 5, 4, -1, 60]);
}

/// The module replicates its writes as SET and DEL, so these commands must keep their names. While Valkey saves without
/// a fork, it may refuse to open a key for writing. CL.LOOK then reads the key with GET.
#[test]
fn the_module_does_not_load_without_a_command_that_it_calls_and_says_which() {
    let (load, unwritable) = (["--loadmodule", module()], load_with_unwritable_keys());
    let renamed = [("SET", ""), ("SET", "OTHER"), ("DEL", ""), ("DEL", "OTHER")].map(|names| (names, &load[..]));
    for ((name, new_name), load) in renamed.into_iter().chain([(("GET", ""), &unwritable[..])]) {
        let arguments = [&["--rename-command", name, new_name], load].concat();
        let log = Server::refused(&arguments);
        let line = log.lines().find(|line| line.contains(&format!("needs the command {name}, ")));
        assert!(
            line.is_some_and(|line| line.contains("renamed or disabled here")),
            "the log does not name {name}: {log}"
        );
    }
}

/// The module needs GET only on a server that may save without a fork.
#[test]
fn the_module_loads_without_a_command_that_it_does_not_call() {
    needs!(FORKS_TO_SAVE);
    let renamed = ["--rename-command", "GET", "", "--loadmodule", module()];
    assert_reply(&mut Server::start_bare(&renamed).connect(), "CL.THROTTLE key 4 1 60", &[0, 5, 4, -1, 60]);
}

/// All calls share one string, which is freed when the module is unloaded. Here, MODULE LOADEX unloads the module to
/// undo a load.
#[test]
fn a_load_keeps_one_string_and_an_unload_frees_it() {
    needs!(REDIS_7);
    let (server, mut connection) = Server::start_bare(&[]).connected();
    let load = format!("MODULE LOADEX {} CONFIG redis-cell.foo 1 ARGS {}", compiled("shim"), module());
    run::<()>(&mut connection, &load).unwrap_err();
    for expected in ["not freed after the load: strings 1, sections 0", "after the unload: strings 0, sections 0"] {
        assert!(server.log().contains(expected), "the log lacks {expected:?}: {}", server.log());
    }
}

#[test]
fn a_second_load_is_refused_with_a_log_line_that_says_where_to_look() {
    let told = |log: &str| {
        let line = log.lines().find(|line| line.contains("is loaded already"));
        let line = line.unwrap_or_else(|| panic!("the second load is not in the log: {log}"));
        for place in ["loadmodule line", "include", "--loadmodule", "systemctl cat"] {
            assert!(line.contains(place), "the line lacks {place:?}: {line}");
        }
    };
    let library = module();
    let (server, mut connection) = Server::start().connected();
    run::<()>(&mut connection, &format!("MODULE LOAD {library}")).unwrap_err();
    told(&server.log());
    assert_reply(&mut connection, "CL.THROTTLE key 4 1 60", &[0, 5, 4, -1, 60]);
    for other in [library, compiled("redis_cell")] {
        told(&Server::refused(&["--loadmodule", other, "--loadmodule", library]));
    }
}

/// Runs the README's command twice, with the test's own paths of the library and the settings file.
#[test]
fn the_readmes_command_replaces_the_line_of_any_other_redis_cell() {
    let library = module();
    let readme = text_of("README.md");
    let (_, command) = readme.split_once("\nsudo sed").unwrap();
    let (command, _) = command.split_once("\nsudo").unwrap();
    for today in [
        "hz 20",
        "loadmodule /nowhere/libredis_cell.so\nhz 20",
        "hz 20\nloadmodule /nowhere/libredis_cell.so",
        "hz 20\n\t LOADMODULE\t\"/nowhere/libredis_cell.so\"\nloadmodule /nowhere/libredis_cell.so\n# loadmodule\n",
    ] {
        let folder = new_folder();
        let file = folder.path().join("redis.conf");
        fs::write(&file, format!("{today}\n")).unwrap();
        let command = command.replace("/etc/redis/redis.conf", file.to_str().unwrap());
        let command = format!("sed{}", command.replace("/usr/lib/redis/modules/libredis_cell.so", library));
        output(Command::new("sh").args(["-ec", &format!("{command}\n{command}")]));
        let server = Server::start_from(&file, &[]);
        assert_eq!(throttle(&mut server.connect(), "key 4 1 60"), [0, 5, 4, -1, 60], "{today}");
        assert_eq!(run::<(String, String)>(&mut server.connect(), "CONFIG GET hz").unwrap().1, "20", "{today}");
    }
}

/// The log and the README must name the same versions.
#[test]
fn the_module_does_not_load_on_a_server_that_is_too_old_and_logs_what_it_needs() {
    let log = Server::refused(&["--loadmodule", compiled("shim"), "RedisModule_StringTruncate", module()]);
    let line = log.lines().find(|line| line.ends_with(": RedisModule_StringTruncate is missing"));
    let (_, needs) = line
        .and_then(|line| line.split_once("<redis-cell> "))
        .unwrap_or_else(|| panic!("no function is missing: {log}"));
    let (_, needs) = needs.split_once(" needs ").unwrap();
    let versions = needs.split([' ', ',', ':']).filter(|word| word.starts_with(|letter: char| letter.is_ascii_digit()));
    let versions: Vec<_> = versions.collect();
    let readme = text_of("README.md");
    let is_said = |version: &&str| readme.contains(&format!("{version} or newer"));
    assert!(versions.len() > 1 && versions.iter().all(is_said), "README.md does not say {versions:?} or newer");
}
