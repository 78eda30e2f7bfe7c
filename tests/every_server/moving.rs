//! Moves from redis_rate, Dragonfly, INCREX and redis-cell to this module, and back.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use redis::Value;

use crate::support::aof::{AOF, wait_for_the_file};
use crate::support::clock::{Clock, SECOND, START};
use crate::support::needs::{FAST, INCREX, PYTHON_REDIS, REDIS_CLI, has_acl_categories, needs};
use crate::support::pages::{ROOT, block, blocks, code, shows, text_of};
use crate::support::programs::{output, python};
use crate::support::replication::{follow, replicate};
use crate::support::sentinel::Sentinel;
use crate::support::{Server, compiled, module, new_folder, run, throttle, wait_until};

/// The module's number on the page, as `MODULE LIST` shows it.
const VERSION: &str = "10000";

/// Returns the command that calls a script of docs/moving on the server at this port. Its head has the command, and
/// docs/moving.md has the same.
fn command_of(script: &str, port: u16) -> String {
    let file = Path::new(ROOT).join("docs/moving").join(script);
    let text = fs::read_to_string(&file).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("--     ")).unwrap();
    assert!(shows("docs/moving.md", line), "{line}");
    line.replace(script, file.to_str().unwrap()).replacen("redis-cli", &format!("redis-cli -p {port}"), 1)
}

/// Two of our servers stand in for Dragonfly and for its successor. 4 of 10 tokens are taken, and 5 come back a minute.
#[test]
fn a_limiter_of_dragonfly_or_redis_rate_goes_on_where_it_was() {
    const YEAR_2017: i64 = 1_483_228_800;
    needs!(REDIS_CLI);
    let [(_, dragonfly, _), (_clock, server, mut connection)] = [(); 2].map(|()| Clock::start(START - START % SECOND));
    let set = format!("SET rate:user123 {} EX 48", START / SECOND - YEAR_2017 + 48);
    for (script, there, old, take_four) in [
        ("from_dragonfly.lua", &dragonfly, "user123", "CL.THROTTLE user123 9 5 60 4"),
        ("from_redis_rate.lua", &server, "rate:user123", &set),
    ] {
        run::<()>(&mut connection, "FLUSHALL").unwrap();
        let line = command_of(script, server.port).replace("-p 6380", &format!("-p {}", there.port));
        let carry = || output(Command::new("sh").args(["-c", &line]));
        assert_eq!(carry(), "0\n", "no limiter");
        run::<Value>(&mut there.connect(), take_four).unwrap();
        assert_eq!(carry(), "1\n");
        assert_eq!(throttle(&mut connection, "user123 9 5 60 0"), [0, 10, 6, -1, 48]);
        assert_eq!(run::<i64>(&mut connection, "PTTL user123").unwrap(), 48_000);
        // A second carry gives back no tokens that were taken here.
        throttle(&mut connection, "user123 9 5 60 2");
        assert_eq!(carry(), "0\n");
        assert_eq!(throttle(&mut connection, "user123 9 5 60 0")[2], 4);
        // The old key stays: other programs may still use it.
        assert!(run::<bool>(&mut there.connect(), &format!("EXISTS {old}")).unwrap());
        // Several quotas stay, though their first moment is earlier.
        let several = "1".repeat(38);
        run::<()>(&mut connection, &format!("SET user123 {several}")).unwrap();
        assert_eq!(carry(), "0\n");
        assert_eq!(run::<String>(&mut connection, "GET user123").unwrap(), several);
        // A moment of 1.8e12 ms: Redis 7.2 writes such a number of a script as 1.8e+12.
        run::<()>(&mut connection, "DEL user123").unwrap();
        run::<()>(&mut connection, "SET rate:user123 316771200").unwrap();
        assert_eq!(carry(), "1\n");
        run::<()>(&mut there.connect(), &format!("SET {old} nineteen-characters")).unwrap();
        assert_eq!(carry(), "0\n", "no number");
    }
}

/// The clock stands still, so both columns count their limit down alike.
#[test]
fn the_lines_of_increx_let_through_what_the_lines_beside_them_do() {
    needs!(INCREX);
    let page = text_of("docs/moving.md");
    let rows = page.lines().filter(|row| row.starts_with("| `INCREX key "));
    let rows: Vec<Vec<_>> = rows.map(|row| code(row).collect()).collect();
    let (_clock, _server, mut connection) = Clock::start(START);
    assert_eq!(rows.len(), 5);
    for row in rows {
        run::<()>(&mut connection, "FLUSHALL").unwrap();
        let (counter, limiter) = (row[0].replace(" key ", " counter "), row[1].replace(" key ", " limiter "));
        run::<Value>(&mut connection, "INCREX counter BYINT 12 UBOUND 100 EX 60 ENX").unwrap();
        throttle(&mut connection, "limiter 99 100 60 12");
        for turn in 0..101 {
            let [count, _]: [i64; 2] = run(&mut connection, &counter).unwrap();
            let [_, _, remaining, ..]: [i64; 5] = run(&mut connection, &limiter).unwrap();
            assert_eq!(100 - count.min(100), remaining, "{counter}, {limiter}, turn {turn}");
        }
    }
}

/// Clients call before each of the page's steps, from redis-cell's stand-in to this module by Sentinel, and back without
/// it. The settings for Sentinel and the client of its primary are the pages'.
#[test]
#[ignore = "slow: Sentinel waits"]
fn a_production_moves_by_sentinel_and_back_without_losing_a_limit() {
    needs!(FAST);
    needs!(REDIS_CLI);
    needs!(PYTHON_REDIS);
    let folder = new_folder();
    let old = folder.path().join("libredis_cell.so");
    fs::copy(compiled("redis_cell"), &old).unwrap();
    let mut members = ["one.conf", "two.conf"].map(|name| {
        let settings = folder.path().join(name);
        fs::write(&settings, format!("loadmodule {}\n", old.display())).unwrap();
        (Server::start_from(&settings, &AOF), settings)
    });
    let [(one, _), (two, _)] = &members;
    replicate(two, one);
    let settings = blocks(|block| block.text.starts_with("sentinel monitor limits")).remove(0).text;
    let sentinel = Sentinel::start(&settings.replace("6379", &one.port.to_string()));
    wait_until("Sentinel knows the replica", || sentinel.answers("SENTINEL replicas limits", &two.port.to_string()));
    let mut client = python("clients/sentinel.py", one);
    client.env("REDIS_URL", format!("redis://127.0.0.1:{}", sentinel.port));
    let mut passed = 0;
    walk(&mut members, &mut passed, Some(&sentinel), module(), VERSION);
    assert!(output(&mut client).starts_with("[0, 3, "));
    drop(sentinel);
    members.reverse();
    walk(&mut members, &mut passed, None, old.to_str().unwrap(), "1");
    let remaining = throttle(&mut members[1].0.connect(), &format!("{LIMITER} 0"))[2];
    assert_eq!(passed + remaining, 1000, "{passed} calls were let through");
}

/// A limiter of 1,000 tokens, none of which comes back within the test.
const LIMITER: &str = "key 999 1 3600";

/// Runs the steps of docs/moving.md on a primary and its replica, with or without a Sentinel. Replaces only addresses
/// and paths. Calls both servers before each step, and counts the calls that pass. `version` is the module's version
/// that INFO must show after the steps.
fn walk(
    members: &mut [(Server, PathBuf); 2],
    passed: &mut i64,
    sentinel: Option<&Sentinel>,
    library: &str,
    version: &str,
) {
    let steps = blocks(|block| block.place.starts_with("docs/moving.md") && block.language == "sh");
    let mut steps: Vec<_> = steps.into_iter().map(|step| step.text).collect();
    let other_way = if sentinel.is_some() { "REPLICAOF NO ONE" } else { "SENTINEL FAILOVER" };
    steps.retain(|step| !step.contains(other_way));
    // Step 7 is steps 2 and 3 at the old primary's address.
    let again = [1, 2].map(|step| steps[step].replace("-h 10.0.0.2", "-h 10.0.0.1"));
    steps.splice(6..6, again);
    // package.rs tests the installation.
    assert!(steps.remove(0).starts_with("sudo apt install"));
    let [one, two] = [0, 1].map(|of| members[of].0.port.to_string());
    for step in steps {
        for (server, _) in &*members {
            // A replica, and a primary whose writes are stopped, answer with an error.
            let reply = run::<[i64; 5]>(&mut server.connect(), &format!("CL.THROTTLE {LIMITER}"));
            *passed += reply.map_or(0, |reply| 1 - reply[0]);
        }
        if step.contains("REPLICAOF 10.0.0.2") && sentinel.is_some() {
            // Sentinel does so itself after a while. The page's command then gets another reply.
            follow(&members[0].0, &members[1].0);
        }
        let (here, settings) = &mut members[usize::from(!step.contains("-h 10.0.0.1"))];
        let restarts = step.contains("\nsudo systemctl restart redis-server");
        // All servers run on this machine: their ports differ, not their addresses.
        let step = step
            .replace("\nsudo systemctl restart redis-server", "")
            .replace("-p 26379", &format!("-p {}", sentinel.map_or(0, |sentinel| sentinel.port)))
            .replace("10.0.0.2 6379", &format!("127.0.0.1 {two}"))
            .replace("-h ", "-p ")
            .replace("10.0.0.1", &one)
            .replace("10.0.0.2", &two)
            .replace("/etc/redis/redis.conf", settings.to_str().unwrap())
            .replace("/usr/lib/redis/modules/libredis_cell.so", library)
            .replace(VERSION, version)
            .replace("sudo ", "");
        // A Sentinel that did not get the processor for two seconds does nothing for half a minute.
        let printed = output(Command::new("timeout").args(["10m", "sh", "-exc", &step]));
        for expected in step.lines().filter_map(|line| Some(line.split_once("   # ")?.1)) {
            assert!(printed.lines().any(|line| line == expected), "{step}\n{printed}");
        }
        if restarts {
            // The server ends as under systemd, and closes the connection.
            let _ = run::<()>(&mut here.connect(), "SHUTDOWN");
            here.restart();
        }
    }
}

/// redis-cell's AOF holds calls, which a server runs again when it loads the file. A rewrite replaces them by states.
#[test]
#[ignore = "slow: restarts"]
fn a_rewrite_before_the_move_keeps_the_moments_that_an_aof_of_calls_would_begin_anew() {
    let folder = new_folder();
    let settings = folder.path().join("redis.conf");
    let load = |library: &str| fs::write(&settings, format!("loadmodule {library}\n")).unwrap();
    load(compiled("redis_cell"));
    let (mut server, mut connection) = Server::start_from(&settings, &AOF).connected();
    throttle(&mut connection, "key 4 1 60");
    let before: String = run(&mut connection, "GET key").unwrap();
    run::<()>(&mut connection, "BGREWRITEAOF").unwrap();
    wait_for_the_file(&mut connection);
    load(module());
    server.restart();
    assert_eq!(run::<String>(&mut server.connect(), "GET key").unwrap(), before);
}

/// The users are in the server's settings. redis-cell's stand-in lacks the commands that are new here.
#[test]
fn a_saved_user_with_a_new_command_keeps_redis_cells_server_from_starting() {
    let granted = |words: &str| block("console", words).lines().next().unwrap().split_once("> ").unwrap().1.to_string();
    let folder = new_folder();
    let settings = folder.path().join("redis.conf");
    let (_server, mut connection) = Server::start().connected();
    for (line, starts) in [
        (granted("+cl.throttle +cl.look"), false),
        ("ACL SETUSER limiter -cl.look".to_string(), !has_acl_categories()),
        (granted("-@all +ping +cl.throttle"), true),
    ] {
        run::<()>(&mut connection, &line).unwrap();
        // A file of settings has a line for each user as ACL LIST shows it.
        let users = run::<Vec<String>>(&mut connection, "ACL LIST").unwrap().join("\n");
        fs::write(&settings, format!("loadmodule {}\n{users}\n", compiled("redis_cell"))).unwrap();
        if starts {
            Server::start_from(&settings, &[]);
            continue;
        }
        let log = Server::refused(&["--include", settings.to_str().unwrap()]);
        let text = "Unknown command or category name in ACL";
        assert!(log.contains(text), "{line}: {log}");
        for page in ["moving", "operating"] {
            assert!(text_of(&format!("docs/{page}.md")).contains(&format!("`{text}`")), "{page}");
        }
    }
}
