//! gcra.lua: the rule as a script, for servers that load no modules.

use redis::{Connection, RedisResult, Value};

use crate::support::clock::{Clock, SECOND};
use crate::support::random::Random;
use crate::support::recipes::{START, eval, pause, quantity, quota, read, user};
use crate::support::{Server, command, error_of, error_text, run, throttle};

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
            let limit = random.pick(&quotas.iter().map(|quota| quota.0).collect::<Vec<_>>());
            let quantity = quantity(&mut random, limit);
            // The calls on one key have different numbers of quotas.
            let (first, further) = quotas[..1 + random.below(quotas.len())].split_first().unwrap();
            let further: String = further.iter().map(|(_, words)| format!(" {words}")).collect();
            let words = format!("{} {quantity}{further}", first.1);
            // A pipeline saves seconds: there are tens of thousands of answers.
            let mut calls = redis::pipe();
            calls.add_command(command(&format!("EVALSHA {sha} 1 script {words}")));
            calls.add_command(command(&format!("CL.THROTTLE module {words}")));
            for state in ["GET script", "PTTL script", "GET module", "PTTL module"] {
                calls.add_command(command(state));
            }
            type Answers = (Vec<i64>, Vec<i64>, Option<String>, i64, Option<String>, i64);
            let (answer, expected, text, ttl, expected_text, expected_ttl): Answers =
                calls.query(&mut connection).unwrap();
            let place = format!("round {round}, at {now}: {words}");
            assert_eq!((&answer, text, ttl), (&expected, expected_text, expected_ttl), "{place}");
            limited += expected[0];
            others += i64::from(expected.get(5).is_some_and(|&deciding| deciding > 1));
            // The clock moves to the end of the wait, or by a random time.
            now += pause(&mut random, expected[3]);
            clock.set(now);
        }
    }
    assert!(limited > 400 && others > 400, "{limited} limited, {others} decided by a later quota");
}

/// A double cannot tell these two numbers apart.
#[test]
fn the_script_leaves_a_token_that_is_a_nanosecond_short_of_ten_years() {
    let (_clock, _server, mut connection) = Clock::start(START);
    for (short, remaining) in [(0, 3), (1, 2)] {
        let tat = START + 700_000_000 * SECOND + short;
        run::<()>(&mut connection, &format!("MSET module {tat} script {tat}")).unwrap();
        let answer: [i64; 5] = by_script(&mut connection, "script 9 1 100000000 0").unwrap();
        assert_eq!(answer, throttle(&mut connection, "module 9 1 100000000 0"));
        assert_eq!(answer[2], remaining);
    }
}

/// Calls the script as CL.THROTTLE is called.
fn by_script<T: redis::FromRedisValue>(connection: &mut Connection, arguments: &str) -> RedisResult<T> {
    eval(connection, "gcra.lua", &format!("1 {arguments}"))
}

#[test]
fn the_script_refuses_what_the_module_refuses_and_what_it_cannot_do_exactly() {
    let (server, mut connection) = Server::start().connected();
    let mut error = |arguments: &str| -> String {
        error_text(&by_script::<Value>(&mut connection, arguments).expect_err(arguments))
    };
    let mut other = server.connect();
    run::<()>(&mut other, "RPUSH list 1").unwrap();
    let states = ["123456789012345678x", "9223372036854775808", "-179000000012345678"].map(String::from);
    let of_several = ["1790000000123456789".repeat(9), "1790000000123456789".to_string() + &"9".repeat(19)];
    for (number, text) in states.iter().chain(&of_several).enumerate() {
        run::<()>(&mut other, &format!("SET state{number} {text}")).unwrap();
    }
    // These are the module's own errors.
    for arguments in [
        "key 15 30",
        "key x 30 60",
        "key 15 30 60 0x1",
        "key 15 30 60 9223372036854775808",
        "key 15 30 0",
        "key 15 0 60",
        "key 15 30 60 1 15 30 60 15 30 x",
        "key 15 30 60 1 9999999999 1 1",
        &format!("key 15 30 60 1{}", " 15 30 60".repeat(8)),
        "list 15 30 60",
        "state0 15 30 60",
        "state1 15 30 60",
        "state2 15 30 60",
        "state3 15 30 60",
        "state4 15 30 60 1 15 30 60",
    ] {
        let expected = error_of(&mut other, &format!("cl.throttle {arguments}"));
        assert_eq!(error(arguments), expected, "{arguments}");
    }
    assert!(!run::<bool>(&mut other, "EXISTS key").unwrap());
    // The module takes this quantity, for which a double has no place.
    assert_eq!(throttle(&mut other, "key 15 30 60 9007199254740993"), [1, 16, 16, -1, 0]);
    assert_eq!(error("key 15 30 60 9007199254740993"), "ERR quantity is not an integer or out of range");
    let exact = "ERR these numbers are too large for a script to be exact";
    for (arguments, number) in [
        ("key 15 9000001 9000001", ""),
        ("key 9007199254740990 1 2", ""),
        ("key 15 30 60 -9007199254740991", ""),
        ("key 15 30 60 1 15 9000001 9000001", " (quota 2)"),
        ("key 15 30 1 -9007199254740991 15 30 60", " (quota 2)"),
    ] {
        assert_eq!(error(arguments), format!("{exact}{number}"), "{arguments}");
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
    throttle(&mut app, "key 4 1 3600 1");
    by_script::<Value>(&mut app, "key 4 1 3600 -1").unwrap();
    let reply: [i64; 5] = by_script(&mut app, "key 4 1 3600 3").unwrap();
    run::<()>(&mut server.connect(), "REPLICAOF 127.0.0.1 1").unwrap();
    let look: [i64; 5] = by_script(&mut app, "key 4 1 3600 0").unwrap();
    assert_eq!(look[..4], reply[..4]);
    let error = by_script::<Value>(&mut app, "key 4 1 3600 1").unwrap_err();
    assert_eq!(error.code(), Some("READONLY"));
}
