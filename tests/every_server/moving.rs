//! Moves from redis_rate, Dragonfly, INCREX and redis-cell to this module, and back.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use redis::{Connection, RedisResult, Value};

use crate::support::aof::{AOF, wait_for_the_file};
use crate::support::clock::{Clock, SECOND, START};
use crate::support::needs::{FAST, INCREX, REDIS_CLI, needs};
use crate::support::pages::{ROOT, blocks, code, shows, text_of};
use crate::support::programs::output;
use crate::support::sentinel::Sentinel;
use crate::support::traffic::under_load;
use crate::support::{Server, compiled, module, new_folder, run, snapshot, throttle, wait_until};

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

/// The command lines are the page's; the second is also the script's.
#[test]
fn a_limiter_with_several_quotas_is_found_and_goes_back_to_its_first() {
    needs!(REDIS_CLI);
    let (_clock, server, mut connection) = Clock::start(START);
    let page = text_of("docs/moving.md");
    let (_, lines) = page.split_once("\n    redis-cli --scan").unwrap();
    let lines = format!("redis-cli --scan{}\n", lines.split("\n\n").next().unwrap());
    let lines = lines.replace("redis-cli", &format!("redis-cli -p {}", server.port));
    // The lines end with the result of `grep` for the last key.
    let found = || Command::new("sh").args(["-c", &lines]).output().unwrap().stdout;
    let line = command_of("first_quota.lua", server.port);
    let back = || output(Command::new("sh").args(["-c", &line]));
    assert_eq!(back(), "0\n", "no key");
    throttle(&mut connection, "one 9 1 3600 4");
    run::<()>(&mut connection, "RPUSH list 1").unwrap();
    assert_eq!(found(), b"", "no limiter has several quotas");
    run::<Value>(&mut connection, "CL.THROTTLE user123 9 1 3600 4 99 1 86400").unwrap();
    let odd = "an 'odd' \\ \"name\" of eight quotas";
    redis::cmd("SET").arg(odd).arg("1790000000123456789".repeat(8)).exec(&mut connection).unwrap();
    let several = String::from_utf8(found()).unwrap();
    assert_eq!(several.lines().collect::<HashSet<_>>(), ["user123", odd].into());
    assert_eq!(back(), "1\n");
    assert_eq!(found(), format!("{odd}\n").as_bytes());
    // The key is now as calls with the first quota alone have made another one.
    let [user123, one] = ["user123", "one"].map(|key| {
        let state = |command: &str| run::<i64>(&mut server.connect(), &format!("{command} {key}")).unwrap();
        ["GET", "PTTL"].map(state)
    });
    assert_eq!(user123, one);
    assert_eq!(back(), "0\n", "one quota");
    // A TAT on a whole millisecond.
    run::<()>(&mut connection, &format!("SET user123 {}", "1790100000000000000".repeat(2))).unwrap();
    assert_eq!(back(), "1\n");
    assert_eq!(snapshot(&mut connection)["user123".as_bytes()].1, 1_790_100_000_000);
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

/// Clients call while the test follows the page's steps, command by command, from redis-cell's stand-in to this module
/// and back.
#[test]
#[ignore = "slow: Sentinel waits"]
fn a_production_with_sentinel_moves_step_by_step_and_back_and_no_limit_is_lost() {
    needs!(FAST);
    const KEYS: usize = 20;
    // The limit is more than the clients can take. A token comes back after ten minutes, when the test is over.
    const LIMIT: i64 = 1_000_000;
    needs!(REDIS_CLI);
    let folder = new_folder();
    let old = folder.path().join("libredis_cell.so");
    fs::copy(compiled("redis_cell"), &old).unwrap();
    let start = |name: &str, line: &str| {
        let settings = folder.path().join(name);
        fs::write(&settings, format!("loadmodule {}\n{line}\n", old.display())).unwrap();
        let server = Server::start_from(&settings, &AOF);
        Member { settings, server: RefCell::new(server) }
    };
    let one = start("one.conf", "");
    let two = start("two.conf", &format!("replicaof 127.0.0.1 {}", one.port()));
    let sentinel = Sentinel::start(&format!("sentinel monitor limits 127.0.0.1 {} 1", one.port()));
    let primary_is = |member: &Member| sentinel.answers("SENTINEL get-master-addr-by-name limits", &member.port());
    wait_until("Sentinel knows the replica", || sentinel.answers("SENTINEL replicas limits", &two.port()));

    let call = |connection: &mut Connection, key: usize, quantity: i64| -> RedisResult<[i64; 5]> {
        run(connection, &format!("CL.THROTTLE key/{key} {} 1 600 {quantity}", LIMIT - 1))
    };
    let ((), passed) = under_load(
        4,
        |_, more| {
            let mut passed = [0; KEYS];
            let mut connection = sentinel.primary();
            for key in (0..KEYS).cycle() {
                // Pause: this test runs for seconds, and a higher rate would only keep the machine busy.
                sleep(Duration::from_millis(8));
                if !more() {
                    break;
                }
                match connection.as_mut().ok().map(|connection| call(connection, key, 1)) {
                    Some(Ok(reply)) => passed[key] += 1 - reply[0],
                    // An error takes no token: Sentinel may have made the other server the primary.
                    _ => connection = sentinel.primary(),
                }
            }
            passed
        },
        || {
            walk(&one, &two, sentinel.port, module(), VERSION);
            assert!(primary_is(&two));
            walk(&two, &one, sentinel.port, old.to_str().unwrap(), "1");
            assert!(primary_is(&one));
        },
    );
    let mut primary = sentinel.primary().unwrap();
    for key in 0..KEYS {
        let passed: i64 = passed.iter().map(|passed| passed[key]).sum();
        let [_, _, remaining, ..] = call(&mut primary, key, 0).unwrap();
        assert!(passed > 0, "key/{key}");
        assert_eq!(passed + remaining, LIMIT, "key/{key}: {passed} calls were let through");
    }
}

/// A server and its settings.
struct Member {
    settings: PathBuf,
    server: RefCell<Server>,
}

impl Member {
    fn port(&self) -> String {
        self.server.borrow().port.to_string()
    }
}

/// Runs the steps of docs/moving.md. It replaces only addresses and paths in a command, and repeats the command until
/// it prints what the page shows beside it. `version` is the module's version that INFO must show after the steps.
fn walk(primary: &Member, replica: &Member, sentinel: u16, library: &str, version: &str) {
    let steps = blocks(|block| block.place.starts_with("docs/moving.md") && block.language == "sh");
    let mut steps: Vec<_> = steps.iter().map(|step| step.text.replace("\\\n", "")).collect();
    // Step 7 is steps 2 and 3 at the old primary's address.
    let again = [1, 2].map(|step| steps[step].replace("-h 10.0.0.2", "-h 10.0.0.1"));
    steps.splice(6..6, again);
    let (one, two) = (primary.port(), replica.port());
    // The commands without an address change the settings of this server, or restart it: the server that the last
    // address has named.
    let mut here = primary;
    for line in steps.iter().flat_map(|step| step.lines()) {
        let (command, expected) = line.split_once("   # ").unwrap_or((line, ""));
        for (address, member) in [("-h 10.0.0.1", primary), ("-h 10.0.0.2", replica)] {
            here = if command.contains(address) { member } else { here };
        }
        // All servers run on this machine: their ports differ, not their addresses.
        let command = command
            .replace("-p 26379", &format!("-p {sentinel}"))
            .replace("10.0.0.2 6379", &format!("127.0.0.1 {two}"))
            .replace("-h ", "-p ")
            .replace("10.0.0.1", &one)
            .replace("10.0.0.2", &two)
            .replace("limits | head -1", "limits | tail -1")
            .replace("/etc/redis/redis.conf", here.settings.to_str().unwrap())
            .replace("/usr/lib/redis/modules/libredis_cell.so", library);
        let expected = expected.replace("10.0.0.2", &two).replace(VERSION, version);
        match command.strip_prefix("sudo ") {
            // package.rs tests the installation.
            Some(install) if install.starts_with("apt install") => {}
            Some("systemctl restart redis-server") => {
                let mut server = here.server.borrow_mut();
                // The server ends as under systemd, and closes the connection.
                let _ = run::<()>(&mut server.connect(), "SHUTDOWN");
                server.restart();
            }
            command_of_root => {
                let printed = || {
                    let command = command_of_root.unwrap_or(&command);
                    let output = Command::new("sh").args(["-c", command]).output().unwrap();
                    let as_expected = String::from_utf8(output.stdout).unwrap().trim() == expected;
                    if !as_expected {
                        // An attempt starts several programs, and Sentinel takes seconds.
                        sleep(Duration::from_millis(100));
                    }
                    as_expected
                };
                // A Sentinel that did not get the processor for two seconds does nothing for half a minute.
                wait_until(line, printed);
            }
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
