//! Moves from redis_rate, INCREX and brandur's redis-cell to this module, and back. docs/moving.md has the commands.

use std::fs;
use std::process::Command;

use redis::Value;

use crate::support::clock::{Clock, SECOND, START};
use crate::support::needs::{INCREX, REDIS_CLI, has_acl_categories, needs};
use crate::support::pages::{ROOT, code, text_of, typed};
use crate::support::programs::output;
use crate::support::{Server, compiled, new_folder, run, throttle};

/// 4 of 10 tokens are taken, and 5 come back a minute.
#[test]
fn a_limiter_of_redis_rate_continues_where_it_was() {
    const YEAR_2017: i64 = 1_483_228_800;
    needs!(REDIS_CLI);
    let page = text_of("docs/moving.md");
    let command = page.lines().find_map(|line| line.strip_prefix("    redis-cli --eval")).unwrap();
    let (_clock, server, mut connection) = Clock::start(START - START % SECOND);
    let copy = || {
        let folder = format!("{ROOT}/docs/moving");
        let line = format!("redis-cli -p {} --eval {command}", server.port);
        output(Command::new("sh").args(["-c", &line]).current_dir(folder))
    };
    assert_eq!(copy(), "0\n", "no limiter");
    run::<()>(&mut connection, &format!("SET rate:user123 {} EX 48", START / SECOND - YEAR_2017 + 48)).unwrap();
    assert_eq!(copy(), "1\n");
    assert_eq!(throttle(&mut connection, "user123 9 5 60 0"), [0, 10, 6, -1, 48]);
    assert_eq!(run::<i64>(&mut connection, "PTTL user123").unwrap(), 48_000);
    // A second copy gives back no tokens that were taken here.
    throttle(&mut connection, "user123 9 5 60 2");
    assert_eq!(copy(), "0\n");
    assert_eq!(throttle(&mut connection, "user123 9 5 60 0")[2], 4);
    // Several quotas stay, though their first timestamp is earlier.
    let several = "1".repeat(38);
    run::<()>(&mut connection, &format!("SET user123 {several}")).unwrap();
    assert_eq!(copy(), "0\n");
    assert_eq!(run::<String>(&mut connection, "GET user123").unwrap(), several);
    // In milliseconds this is 1.8e12, as Redis 7.2 would write the number of a script.
    run::<()>(&mut connection, "DEL user123").unwrap();
    run::<()>(&mut connection, "SET rate:user123 316771200").unwrap();
    assert_eq!(copy(), "1\n");
    run::<()>(&mut connection, "SET rate:user123 nineteen-characters").unwrap();
    assert_eq!(copy(), "0\n", "not a number");
}

/// The clock stands still, so both columns count down alike.
#[test]
fn each_call_of_increx_allows_what_the_call_beside_it_allows() {
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

/// The stand-in for redis-cell lacks the commands that are new here.
#[test]
fn a_saved_user_of_a_new_command_keeps_a_server_with_redis_cell_from_starting() {
    let folder = new_folder();
    let settings = folder.path().join("redis.conf");
    let (_server, mut connection) = Server::start().connected();
    for (line, starts) in [
        (typed("+cl.throttle +cl.look"), false),
        ("ACL SETUSER limiter -cl.look".to_string(), !has_acl_categories()),
        (typed("-@all +ping +cl.throttle"), true),
    ] {
        run::<()>(&mut connection, &line).unwrap();
        // A settings file has a line for each user, as ACL LIST shows it.
        let users = run::<Vec<String>>(&mut connection, "ACL LIST").unwrap().join("\n");
        fs::write(&settings, format!("loadmodule {}\n{users}\n", compiled("redis_cell"))).unwrap();
        if starts {
            Server::start_from(&settings, &[]);
            continue;
        }
        let log = Server::refused(&["--include", settings.to_str().unwrap()]);
        let text = "Unknown command or category name in ACL";
        assert!(log.contains(text), "{line}: {log}");
        assert!(text_of("docs/platforms.md").contains(&format!("`{text}`")), "the page lacks {text:?}");
    }
}
