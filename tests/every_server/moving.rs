//! Moves from redis_rate, Dragonfly, INCREX and redis-cell to this module, and back.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use redis::{Connection, RedisResult, Value};

use crate::support::aof::{AOF, wait_for_the_file};
use crate::support::clock::{Clock, SECOND, START};
use crate::support::needs::{FAST, INCREX, REDIS_CLI, has_acl_categories, needs};
use crate::support::pages::{ROOT, block, blocks, code, shows, text_of};
use crate::support::programs::output;
use crate::support::sentinel::Sentinel;
use crate::support::traffic::under_load;
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

/// Clients call while the test follows the page's steps, from redis-cell's stand-in to this module by Sentinel, and back
/// without it.
#[test]
#[ignore = "slow: Sentinel waits"]
fn a_production_moves_and_moves_back_without_losing_a_limit() {
    needs!(FAST);
    needs!(REDIS_CLI);
    const KEYS: usize = 20;
    // The limit is more than the clients can take. A token comes back after ten minutes, when the test is over.
    const LIMIT: i64 = 1_000_000;
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
    wait_until("Sentinel knows the replica", || sentinel.answers("SENTINEL replicas limits", &two.port()));

    let clients = [&one, &two].map(|member| member.server.borrow().client());
    let primary = || {
        let connections = clients.iter().filter_map(|client| client.get_connection().ok());
        connections.into_iter().find_map(|mut connection| {
            let role: Vec<Value> = run(&mut connection, "ROLE").ok()?;
            (role[0] == Value::BulkString(b"master".to_vec())).then_some(connection)
        })
    };
    let call = |connection: &mut Connection, key: usize, quantity: i64| -> RedisResult<[i64; 5]> {
        run(connection, &format!("CL.THROTTLE key/{key} {} 1 600 {quantity}", LIMIT - 1))
    };
    let ((), passed) = under_load(
        4,
        |_, more| {
            let mut passed = [0; KEYS];
            let mut connection = primary();
            for key in (0..KEYS).cycle() {
                // Pause: this test runs for seconds, and a higher rate would only keep the machine busy.
                sleep(Duration::from_millis(8));
                if !more() {
                    break;
                }
                match connection.as_mut().map(|connection| call(connection, key, 1)) {
                    Some(Ok(reply)) => passed[key] += 1 - reply[0],
                    // An error takes no token: the other server may be the primary by now.
                    _ => connection = primary(),
                }
            }
            passed
        },
        || {
            let ask = |member: &Member, line: &str| run::<String>(&mut member.server.borrow().connect(), line).unwrap();
            wait_until("every limiter is in use", || ask(&one, "DBSIZE") == KEYS.to_string());
            walk(&one, &two, Some(sentinel), module(), VERSION);
            wait_until("calls pass again", || {
                !ask(&two, "INFO redis-cell").contains("redis-cell_throttle_allowed:0\r")
            });
            walk(&two, &one, None, old.to_str().unwrap(), "1");
        },
    );
    let mut primary = primary().unwrap();
    for key in 0..KEYS {
        let passed: i64 = passed.iter().map(|passed| passed[key]).sum();
        let [_, _, remaining, ..] = call(&mut primary, key, 0).unwrap();
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

/// Runs the steps of docs/moving.md, with or without a Sentinel, which ends with the walk. It replaces only addresses and
/// paths. `version` is the module's version that INFO must show after the steps.
fn walk(primary: &Member, replica: &Member, sentinel: Option<Sentinel>, library: &str, version: &str) {
    let steps = blocks(|block| block.place.starts_with("docs/moving.md") && block.language == "sh");
    let mut steps: Vec<_> = steps.into_iter().map(|step| step.text).collect();
    let other_way = if sentinel.is_some() { "REPLICAOF NO ONE" } else { "SENTINEL FAILOVER" };
    steps.retain(|step| !step.contains(other_way));
    // Step 7 is steps 2 and 3 at the old primary's address.
    let again = [1, 2].map(|step| steps[step].replace("-h 10.0.0.2", "-h 10.0.0.1"));
    steps.splice(6..6, again);
    // package.rs tests the installation.
    assert!(steps.remove(0).starts_with("sudo apt install"));
    let (one, two) = (primary.port(), replica.port());
    for step in steps {
        if step.contains("REPLICAOF 10.0.0.2") && sentinel.is_some() {
            // Sentinel does so itself after a while. The page's command then gets another reply.
            run::<()>(&mut primary.server.borrow().connect(), &format!("REPLICAOF 127.0.0.1 {two}")).unwrap();
        }
        let here = if step.contains("-h 10.0.0.1") { primary } else { replica };
        let (step, restarts) = match step.strip_suffix("\nsudo systemctl restart redis-server") {
            Some(before) => (before.to_string(), true),
            None => (step, false),
        };
        // All servers run on this machine: their ports differ, not their addresses.
        let step = step
            .replace("-p 26379", &format!("-p {}", sentinel.as_ref().map_or(0, |sentinel| sentinel.port)))
            .replace("10.0.0.2 6379", &format!("127.0.0.1 {two}"))
            .replace("-h ", "-p ")
            .replace("10.0.0.1", &one)
            .replace("10.0.0.2", &two)
            .replace("/etc/redis/redis.conf", here.settings.to_str().unwrap())
            .replace("/usr/lib/redis/modules/libredis_cell.so", library)
            .replace(VERSION, version)
            .replace("sudo ", "");
        // The shell shows each command that it runs, and `tee` the answer in which `grep` looks for a word.
        let shown = step.replace("| grep -q", "| tee /dev/stderr | grep -q");
        // A Sentinel that did not get the processor for two seconds does nothing for half a minute.
        let ended = Command::new("timeout").args(["10m", "sh", "-exc", &shown]).output().unwrap();
        let [printed, ran] = [ended.stdout, ended.stderr].map(|text| String::from_utf8(text).unwrap());
        let last: Vec<_> = ran.lines().rev().take(60).collect();
        let last = last.into_iter().rev().collect::<Vec<_>>().join("\n");
        let mut expected = step.lines().filter_map(|line| Some(line.split_once("   # ")?.1));
        let mut lines = printed.lines();
        let as_the_page_says = ended.status.success() && expected.all(|text| lines.any(|line| line == text));
        assert!(as_the_page_says, "{step}\n{}\n{printed}\n{last}", ended.status);
        if restarts {
            let mut server = here.server.borrow_mut();
            // The server ends as under systemd, and closes the connection.
            let _ = run::<()>(&mut server.connect(), "SHUTDOWN");
            server.restart();
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
    fs::write(&settings, format!("loadmodule {}\n", module())).unwrap();
    let (_server, mut connection) = Server::start_from(&settings, &[]).connected();
    for (line, starts) in [
        (granted("+cl.throttle +cl.look"), false),
        ("ACL SETUSER limiter -cl.look".to_string(), !has_acl_categories()),
        (granted("-@all +ping +cl.throttle"), true),
    ] {
        run::<()>(&mut connection, &line).unwrap();
        run::<()>(&mut connection, "CONFIG REWRITE").unwrap();
        // The rewritten file has this server's port as well.
        let saved = fs::read_to_string(&settings).unwrap();
        let users = saved.lines().filter(|line| line.starts_with("user ")).collect::<Vec<_>>().join("\n");
        let back = folder.path().join("back.conf");
        fs::write(&back, format!("loadmodule {}\n{users}\n", compiled("redis_cell"))).unwrap();
        if starts {
            Server::start_from(&back, &[]);
            continue;
        }
        let log = Server::refused(&["--include", back.to_str().unwrap()]);
        let text = "Unknown command or category name in ACL";
        assert!(log.contains(text), "{line}: {log}");
        for page in ["moving", "operating"] {
            assert!(text_of(&format!("docs/{page}.md")).contains(&format!("`{text}`")), "{page}");
        }
    }
}
