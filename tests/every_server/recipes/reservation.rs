//! docs/budgets/reservation.lua: a call is reserved once and settled once, and an error changes nothing.

use std::fmt::Debug;
use std::thread;

use redis::{Connection, Value};

use crate::support::clock::{Clock, MILLISECOND};
use crate::support::needs::{FUNCTIONS, needs};
use crate::support::pages::{code, text_of};
use crate::support::recipes::{START, ask, load_reservations, user};
use crate::support::{PATIENCE, Server, error_of, error_text, info, run, snapshot, throttle, wait_until};

fn start() -> (Clock, Server, Connection) {
    let (clock, server, _) = Clock::start(START);
    let connection = load_reservations(&server);
    (clock, server, connection)
}

fn keys(id: &str) -> String {
    format!("4 {{a}}:{id} {{a}}:calls {{a}}:requests {{a}}:tokens")
}

/// Returns the state of every key, and the holds.
fn everything(connection: &mut Connection) -> impl PartialEq + Debug + use<> {
    (snapshot(connection), run::<Vec<String>>(connection, "ZRANGE {a}:calls 0 -1 WITHSCORES").unwrap())
}

/// Returns the keys and the arguments of a call that is written as its id and its estimate.
fn words(call: &str) -> String {
    let (id, estimate) = call.split_once(' ').unwrap();
    format!("{} 30000 2 59 60 60 1 19999 20000 60 {estimate}", keys(id))
}

#[test]
fn a_call_is_reserved_once_and_settled_once() {
    needs!(FUNCTIONS);
    let (clock, server, mut connection) = start();
    let mut app = user(&server, "docs/budgets.md", "## A reservation");
    for (second, line, expected, tokens) in [
        (0, format!("reserve {}", words("7 500")), vec![0], 19_500),
        // The answer was lost, and the caller repeats the call.
        (0, format!("reserve {}", words("7 500")), vec![0], 19_500),
        (0, format!("reserve {}", words("8 19501")), vec![2, 1], 19_500),
        (0, format!("reserve {}", words("8 20001")), vec![2, -1], 19_500),
        (0, format!("reserve {}", words("8 19500")), vec![0], 0),
        (1, format!("reserve {}", words("9 1")), vec![0, 29], 333),
        (1, format!("settle {} 1 430", keys("7")), vec![1], 403),
        (1, format!("settle {} 1 430", keys("7")), vec![2], 403),
        (1, format!("settle {} 1 430", keys("5")), vec![0], 403),
        (1, "renew 2 {a}:8 {a}:calls 2000".to_string(), vec![1], 403),
        (1, "renew 2 {a}:7 {a}:calls 2000".to_string(), vec![0], 403),
        // The caller has died.
        (3, "renew 2 {a}:8 {a}:calls 2000".to_string(), vec![0], 1_070),
        (3, format!("reserve {}", words("9 70")), vec![0], 1_000),
        (3, format!("settle {} 1 21500", keys("8")), vec![1], 0),
        // Without places.
        (3, "reserve 2 c limiter 1000 9 10 60 10".to_string(), vec![0], 0),
        (3, "reserve 2 d limiter 1000 9 10 60 1".to_string(), vec![1, 6], 0),
        (3, "reserve 3 d other limiter 1000 9 10 60 11 9 10 60 1".to_string(), vec![1, -1], 0),
        (3, "settle 2 c limiter 9".to_string(), vec![1], 0),
        // Redis 7.2 writes such a number of a script as 1e+09.
        (3, "reserve 2 e large 1000 1999999999 2000000000 60 1000000000".to_string(), vec![0], 0),
        (3, "settle 2 e large 0".to_string(), vec![1], 0),
        (3, "reserve 2 f large 1000 1999999999 2000000000 60 2000000000".to_string(), vec![0], 0),
        // Ten leases later.
        (22, format!("settle {} 1 21500", keys("8")), vec![0], 5_333),
    ] {
        clock.set(START + second * 1_000 * MILLISECOND);
        assert_eq!(ask(&mut app, &format!("FCALL {line}")).unwrap(), expected, "{line}");
        assert_eq!(throttle(&mut connection, "{a}:tokens 19999 20000 60 0")[2], tokens, "{line}");
    }
    assert_eq!(ask(&mut app, "FCALL_RO reservations 1 {a}:calls").unwrap(), [1], "call 9");
}

/// The commands of the page wake it.
#[test]
fn a_call_in_flight_that_settles_lets_a_waiting_one_in_before_its_lease_ends() {
    needs!(FUNCTIONS);
    let (_clock, server, mut connection) = start();
    let page = text_of("docs/recipes.md");
    let (_, section) = page.split_once("## Calls in flight").unwrap();
    let [wait, wake, trim] =
        ["BLPOP", "LPUSH", "LTRIM"].map(|name| code(section).find(|code| code.starts_with(name)).unwrap());
    let mut reserve = |id: &str| ask(&mut connection, &format!("FCALL reserve 2 {id} calls 30000 1")).unwrap();
    assert_eq!(["one", "two"].map(&mut reserve), [vec![0], vec![0, 30]]);
    let app = || user(&server, "docs/recipes.md", "## Calls in flight");
    let (mut one, mut waits, mut wakes) = (server.connect(), app(), app());
    waits.set_read_timeout(Some(PATIENCE)).unwrap();
    let waits = thread::spawn(move || run::<Value>(&mut waits, &wait).unwrap());
    wait_until("a client waits", || info(&mut one, "blocked_clients") == "1");
    run::<i64>(&mut one, "FCALL settle 2 one calls").unwrap();
    for line in [wake, trim] {
        run::<Value>(&mut wakes, &line).unwrap();
    }
    assert_ne!(waits.join().unwrap(), Value::Nil);
    assert_eq!(reserve("two"), [0]);
}

#[test]
fn a_call_with_bad_input_changes_nothing() {
    needs!(FUNCTIONS);
    let (clock, _server, mut connection) = start();
    for line in ["SET {a}:text x", "RPUSH {a}:list x"] {
        run::<()>(&mut connection, line).unwrap();
    }
    let [two, broken] = ["3 {a}:two {a}:fast {a}:slow", "3 {a}:half {a}:fast {a}:broken"];
    let [cut, gone] = ["3 {a}:cut {a}:full {a}:slow", "3 {a}:gone {a}:full {a}:broken"];
    let [numbers, soon] = ["600", "1"].map(|period| format!("90000 9 10 {period} 5 9 1 86400 5"));
    let calls = [(two, &numbers), (broken, &numbers), (cut, &soon), (gone, &soon)];
    let calls = calls.map(|(keys, numbers)| format!("{keys} {numbers}"));
    for call in [words("dead 500")].iter().chain(&calls) {
        assert_eq!(ask(&mut connection, &format!("FCALL reserve {call}")).unwrap(), [0], "{call}");
    }
    run::<()>(&mut connection, "SET {a}:broken x").unwrap();
    clock.set(START + 30_000 * MILLISECOND);
    let before = everything(&mut connection);
    let no_estimate = "limiter 2 needs a key of its own, and an estimate";
    let reserve = [
        ("19999", "1 19999", "wrong number of arguments"),
        ("60 5", "60 -5", no_estimate),
        ("60 5", "60 9999999999999999", no_estimate),
        ("{a}:tokens", "{a}:new", no_estimate),
        ("requests", "calls", "limiter 1 needs a key of its own, and an estimate"),
        ("{a}:calls", "{a}:new", "the call needs a key of its own"),
        ("{a}:tokens", "{a}:requests", "key is the same as in group 1"),
        ("30000 2", "0 2", "lease must be a whole number"),
        ("30000 2", "30000 0", "places must be a whole number"),
        // A place is taken whose lease has ended.
        ("2 59 60 60", "1 59 0 60", "count must be 1 or more"),
        ("59 60 60", "59 0 60", "count must be 1 or more"),
        ("{a}:tokens", "{a}:text", "the key holds no rate limiter"),
        ("{a}:calls", "{a}:list", "Operation against a key"),
    ];
    let reserve = reserve.map(|(from, to, error)| (format!("reserve {}", words("new 5").replacen(from, to, 1)), error));
    let others = [
        (format!("reserve {}", words("dead 500").replace("quests", "")), "this call has reserved with other words"),
        (format!("settle {} 1 5", keys("dead").replace("quests", "")), "this call has reserved with other words"),
        ("settle 3 {a}:dead {a}:requests {a}:tokens 1 5".to_string(), "this call has reserved with other words"),
        (format!("settle {} 500", keys("dead")), "wrong number of arguments"),
        (
            format!("settle {} 1 -1", keys("dead")),
            "what was used must be a whole number of at most 15 digits (limiter 2)",
        ),
        // The first limiter is charged before the second cannot be.
        (format!("settle {two} 1000000 1000000"), "quantity: the tokens would be back only"),
        (format!("settle {broken} 6 6"), "the key holds no rate limiter"),
        (format!("settle {broken} 6 0"), "the key holds no rate limiter"),
        // The first limiter is full, so a refund would change nothing, and could not be undone.
        (format!("settle {cut} 0 1000000"), "quantity: the tokens would be back only"),
        (format!("settle {gone} 0 0"), "the key holds no rate limiter"),
        ("reserve 2 {a}:none {a}:none 1000 1".to_string(), "the call needs a key of its own"),
        ("renew 2 {a}:dead {a}:calls 1e4".to_string(), "lease must be a whole number"),
        ("renew 2 {a}:dead {a}:calls".to_string(), "wrong number of arguments"),
        ("renew 1 {a}:dead 1000".to_string(), "wrong number of arguments"),
        ("reserve 1 {a}:none 1000".to_string(), "wrong number of arguments"),
        ("settle 1 {a}:dead".to_string(), "wrong number of arguments"),
        ("reservations 0".to_string(), "wrong number of arguments"),
    ];
    for (line, expected) in reserve.into_iter().chain(others) {
        let error = error_of(&mut connection, &format!("FCALL {line}"));
        let (code, text) = error.split_once(' ').unwrap();
        assert!(matches!(code, "ERR" | "WRONGTYPE") && text.starts_with(expected), "{line}: {error}");
        assert_eq!(everything(&mut connection), before, "{line}");
    }
}

/// A name may have spaces, be empty, or look like what the functions store.
#[test]
fn a_call_is_settled_by_the_keys_that_it_has_reserved_whatever_their_names() {
    needs!(FUNCTIONS);
    let (_clock, _server, mut connection) = start();
    let names = ["x", "y", "x y", "y x", "", " ", "x of 9 10 60 5"];
    let one = names.map(|name| vec![name]);
    let two = names.iter().flat_map(|first| names.map(|second| vec![*first, second]));
    let keys: Vec<_> = one.into_iter().chain(two.filter(|keys| keys[0] != keys[1])).collect();
    // All keys are limiters, or the first is the holds.
    let places = keys.iter().filter(|keys| keys.len() == 2).map(|keys| (keys, 1));
    let all: Vec<_> = keys.iter().map(|keys| (keys, keys.len())).chain(places).collect();
    let call = |function: &str, (keys, limiters): &(&Vec<&str>, usize), words: &[&str], of_each: &[&str]| {
        let mut call = redis::cmd("FCALL");
        call.arg(function).arg(1 + keys.len()).arg("the call").arg(keys);
        call.arg(&words[..words.len().min(1 + keys.len() - limiters)]).arg(of_each.repeat(*limiters));
        call
    };
    for reserved in &all {
        run::<()>(&mut connection, "FLUSHALL").unwrap();
        let reserve = call("reserve", reserved, &["30000", "4"], &["9", "10", "60", "5"]);
        assert_eq!(reserve.query(&mut connection), Ok(0), "{reserved:?}");
        for other in all.iter().filter(|other| *other != reserved) {
            let again = call("reserve", other, &["30000", "4"], &["9", "10", "60", "5"]);
            for call in [call("settle", other, &[], &["9"]), again] {
                let answer = call.query::<Value>(&mut connection).map_err(|error| error_text(&error));
                let is_refused = answer.as_ref().is_err_and(|error| error.contains("reserved with other words"));
                assert!(is_refused, "{reserved:?}, {other:?}: {answer:?}");
            }
        }
        assert_eq!(call("settle", reserved, &[], &["1"]).query(&mut connection), Ok(1), "{reserved:?}");
    }
}

#[test]
fn a_caller_without_a_right_changes_nothing() {
    needs!(FUNCTIONS);
    let (_clock, server, mut connection) = start();
    let mut app = user(&server, "docs/budgets.md", "## A reservation");
    ask(&mut app, &format!("FCALL reserve {}", words("old 500"))).unwrap();
    let before = everything(&mut connection);
    let several = format!("reserve {}", words("new 5"));
    let one = "reserve 2 {a}:one {a}:tokens 30000 19999 20000 60 5";
    let settle = format!("settle {} 0 600", keys("old"));
    for (right, lines) in [
        ("get", vec![&*several, one]),
        ("set", vec![&several, one, &settle]),
        ("time", vec![&several]),
        ("zadd", vec![&several, "renew 2 {a}:old {a}:calls 1000"]),
        ("pexpire", vec![&several, "renew 2 {a}:old {a}:calls 1000"]),
        ("zcard", vec![&several]),
        ("cl.throttle", vec![one]),
        ("cl.mthrottle", vec![&several]),
        ("cl.charge", vec![&settle]),
        ("zrem", vec![&settle]),
    ] {
        run::<()>(&mut connection, &format!("ACL SETUSER app -{right}")).unwrap();
        for line in lines {
            let error = error_of(&mut app, &format!("FCALL {line}"));
            // Redis 7.0 says that the user can't run it.
            assert!(error.contains("permission") || error.contains("can't run"), "without {right}: {line}: {error}");
            assert_eq!(everything(&mut connection), before, "without {right}: {line}");
        }
        run::<()>(&mut connection, &format!("ACL SETUSER app +{right}")).unwrap();
    }
}

/// A server at maxmemory would otherwise keep places taken and tokens charged until the leases end.
#[test]
fn calls_end_at_maxmemory_and_none_is_reserved() {
    needs!(FUNCTIONS);
    let (_clock, _server, mut connection) = start();
    for call in ["more 500", "less 500"] {
        ask(&mut connection, &format!("FCALL reserve {}", words(call))).unwrap();
    }
    run::<()>(&mut connection, "CONFIG SET maxmemory 1").unwrap();
    let settle = ["more", "less"].map(|id| format!("settle {} 1 600", keys(id)));
    for call in ["renew 2 {a}:more {a}:calls 60000", &settle[0], &settle[1]] {
        assert_eq!(ask(&mut connection, &format!("FCALL {call}")).unwrap(), [1]);
    }
    assert_eq!(ask(&mut connection, "FCALL_RO reservations 1 {a}:calls").unwrap(), [0]);
    assert!(error_of(&mut connection, &format!("FCALL reserve {}", words("new 500"))).starts_with("OOM "));
}
