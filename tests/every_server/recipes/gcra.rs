//! gcra.lua: the rule as a script, for servers that load no modules.

use redis::{Connection, RedisResult, Value};

use crate::support::clock::{Clock, SECOND};
use crate::support::random::Random;
use crate::support::recipes::{START, eval, read, user};
use crate::support::{Server, command, error_of, error_text, run, throttle};

fn number(random: &mut Random, end: u64) -> i64 {
    let end = if random.one_in(3) { end } else { end.min(40) };
    (random.of_any_length().unsigned_abs() % end) as i64
}

/// Returns the limit and the words of a quota. Most numbers are small, so that limiters run empty.
fn quota(random: &mut Random) -> (i64, String) {
    loop {
        let (limit, count) = (number(random, 1 << 31), 1 + number(random, 9_000_000));
        let period = 1 + number(random, 1 << 21);
        // A limiter that would be full again only after the year 2262 is an error.
        if limit * period / count < 7_000_000_000 {
            return (limit, format!("{} {count} {period}", limit - 1));
        }
    }
}

#[test]
#[ignore = "slow: thousands of calls"]
fn the_script_for_servers_without_modules_answers_and_stores_as_the_module_does() {
    let (clock, _server, mut connection) = Clock::start(START);
    let sha: String = redis::cmd("SCRIPT").arg("LOAD").arg(read("gcra.lua")).query(&mut connection).unwrap();
    let mut random = Random::new(2026);
    let mut now = START;
    let (mut limited, mut others) = (0, 0);
    for round in 0..250 {
        let quotas: Vec<_> = (0..1 + random.below(3) * random.below(4)).map(|_| quota(&mut random)).collect();
        run::<()>(&mut connection, "DEL module script").unwrap();
        // Start from a state that these calls never leave: odd nanoseconds, or a debt.
        if random.one_in(4) {
            let tats: String = (0..1 + random.below(8))
                .map(|_| now + random.of_any_length() % (20_000 * SECOND) - 5_000 * SECOND)
                .map(|tat| format!("{tat:019}"))
                .collect();
            run::<()>(&mut connection, &format!("MSET module {tats} script {tats}")).unwrap();
        }
        for _ in 0..20 {
            let quantity = match random.below(8) {
                0 => 0,
                1 => -number(&mut random, 1 << 31),
                2 => number(&mut random, 1 << 31),
                3 => quotas[random.below(quotas.len())].0,
                _ => 1 + random.below(3) as i64,
            };
            // The calls on one key have different numbers of quotas.
            let (first, further) = quotas[..1 + random.below(quotas.len())].split_first().unwrap();
            let further: String = further.iter().map(|(_, words)| format!(" {words}")).collect();
            let words = format!("{} {quantity}{further}", first.1);
            // A pipeline saves seconds: there are tens of thousands of answers.
            let mut calls = redis::pipe();
            for (key, call) in [("script", format!("EVALSHA {sha} 1 script")), ("module", "CL.THROTTLE module".into())]
            {
                for line in [format!("{call} {words}"), format!("GET {key}"), format!("PTTL {key}")] {
                    calls.add_command(command(&line));
                }
            }
            let answers: Vec<Value> = calls.query(&mut connection).unwrap();
            let (script, module) = answers.split_at(3);
            assert_eq!(script, module, "round {round}, at {now}: {words}");
            let expected: Vec<i64> = redis::from_redis_value(module[0].clone()).unwrap();
            limited += expected[0];
            others += i64::from(expected.get(5).is_some_and(|&deciding| deciding > 1));
            // The clock often moves to the end of the wait, at most 12 days.
            now += match random.below(4) {
                0 => expected[3].clamp(0, 1 << 20) * SECOND,
                1 => number(&mut random, 1 << 31) * 1_000,
                _ => 0,
            };
            clock.set(now);
        }
    }
    assert!(limited > 400 && others > 400, "{limited} limited, {others} decided by a later quota");
}

/// Calls the script as CL.THROTTLE is called.
fn by_script<T: redis::FromRedisValue>(connection: &mut Connection, arguments: &str) -> RedisResult<T> {
    eval(connection, "gcra.lua", &format!("1 {arguments}"))
}

#[test]
fn the_script_refuses_what_the_module_refuses() {
    let (server, mut connection) = Server::start().connected();
    run::<()>(&mut connection, "RPUSH list 1").unwrap();
    let moment = "1790000000123456789";
    for (key, text) in [
        ("letter", "179000000012345678x"),
        ("long", "17900000001234567890"),
        ("beyond", "9223372036854775808"),
        ("nine", &moment.repeat(9)),
        ("second_beyond", &format!("{moment}{}", "9".repeat(19))),
    ] {
        run::<()>(&mut connection, &format!("SET {key} {text}")).unwrap();
    }
    for arguments in [
        "key 15 30",
        "key 15 30 60 0x1",
        "key 15 30 0",
        "key 99 1 99999999",
        "key 15 30 60 1 15 30 60 15 30 x",
        "key 15 30 60 1 9999999999 1 1",
        &format!("key 15 30 60 1{}", " 15 30 60".repeat(8)),
        "list 15 30 60",
        "letter 15 30 60",
        "long 15 30 60",
        "beyond 15 30 60",
        "nine 15 30 60",
        "second_beyond 15 30 60 1 15 30 60",
    ] {
        let expected = error_of(&mut connection, &format!("cl.throttle {arguments}"));
        let error = by_script::<Value>(&mut server.connect(), arguments).expect_err(arguments);
        assert_eq!(error_text(&error), expected, "{arguments}");
    }
}

#[test]
fn the_script_is_exact_or_refuses() {
    let (_clock, _server, mut connection) = Clock::start(START);
    // A token is there after ten years, or a nanosecond later: a double cannot tell these two numbers apart.
    for (short, remaining) in [(0, 3), (1, 2)] {
        let tat = START + 700_000_000 * SECOND + short;
        run::<()>(&mut connection, &format!("MSET module {tat} script {tat}")).unwrap();
        let answer: [i64; 5] = by_script(&mut connection, "script 9 1 100000000 0").unwrap();
        assert_eq!(answer, throttle(&mut connection, "module 9 1 100000000 0"));
        assert_eq!(answer[2], remaining);
    }
    let exact = "ERR these numbers are too large for a script to be exact";
    for (arguments, expected) in [
        ("key 15 30 60 9007199254740993", "ERR quantity is not an integer or out of range"),
        ("key 15 9000001 9000001", exact),
        ("key 9007199254740990 1 2", exact),
        ("key 15 30 60 -9007199254740991", exact),
        ("key 15 30 60 1 15 9000001 9000001", &format!("{exact} (quota 2)")),
    ] {
        let error = by_script::<Value>(&mut connection, arguments).expect_err(arguments);
        assert_eq!(error_text(&error), expected, "{arguments}");
    }
}

#[test]
fn a_replica_answers_a_look_by_the_script() {
    let server = Server::start();
    let mut app = user(&server, "docs/recipes.md", "## Without the module");
    // A client library calls EVALSHA and SCRIPT, and the programs on the page ask for the module.
    let back = redis::Script::new(&read("gcra.lua")).key("key").arg(&["4", "1", "3600", "-1"]).invoke(&mut app);
    assert_eq!(back.map(|back: [i64; 5]| back[2]), Ok(5));
    run::<Value>(&mut app, "COMMAND INFO CL.THROTTLE").unwrap();
    assert_eq!(by_script::<[i64; 5]>(&mut app, "key 4 1 3600").unwrap()[..4], [0, 5, 4, -1]);
    throttle(&mut app, "key 4 1 3600 1");
    by_script::<Value>(&mut app, "key 4 1 3600 -2").unwrap();
    by_script::<Value>(&mut app, "key 4 1 3600 3").unwrap();
    run::<()>(&mut server.connect(), "REPLICAOF 127.0.0.1 1").unwrap();
    assert_eq!(by_script::<[i64; 5]>(&mut app, "key 4 1 3600 0").unwrap()[..4], [0, 5, 2, -1]);
    let error = by_script::<Value>(&mut app, "key 4 1 3600 1").unwrap_err();
    assert_eq!(error.code(), Some("READONLY"));
}
