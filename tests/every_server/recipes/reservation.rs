//! docs/budgets/reservation.lua: a call is reserved once and settled once, and an error changes nothing.

use redis::{Connection, Value};

use crate::support::clock::{Clock, MILLISECOND};
use crate::support::needs::needs;
use crate::support::recipes::{Row, START, permissions};
use crate::support::reservations::{QUOTAS, RESERVE, ask, integer, live_through, load};
use crate::support::{Server, command, error_of, run, snapshot};

fn start() -> (Clock, Server, Connection) {
    let (clock, server) = Clock::start(START);
    let connection = load(&server);
    (clock, server, connection)
}

/// Returns everything in the database: the limiters, and the holds with their expiry.
fn everything(connection: &mut Connection) -> String {
    let holds: Vec<Value> = run(connection, "ZRANGE {a}:calls 0 -1 WITHSCORES").unwrap();
    format!("{holds:?} {} {:?}", integer(connection, "PEXPIRETIME {a}:calls"), snapshot(connection))
}

const SETTLE: &str = "FCALL settle 3 {a}:calls {a}:requests {a}:tokens";

#[test]
fn a_call_is_reserved_once_and_settled_once() {
    needs!("functions, Redis 7");
    let (clock, _server, mut connection) = start();
    let mut ask = |line: &str| ask(&mut connection, line).unwrap();
    let reserve = |call: &str| format!("{RESERVE} {} keep {QUOTAS}", call.replace(", ", " 30000 2 "));
    let first = (vec![0, 1, -1], vec![[0, 60, 59, -1, 1], [0, 20_000, 19_500, -1, 2]]);
    assert_eq!(ask(&reserve("call-7, 500")), first);
    assert_eq!(ask(&reserve("call-7, 500")), first, "the answer was lost, and the caller repeats the call");
    assert_eq!(ask(&reserve("call-8, 19501")).0, [1, 1, -1], "the tokens limit it");
    assert_eq!(ask(&reserve("call-8, 19500")).0, [0, 0, -1]);
    clock.set(START + 1_000 * MILLISECOND);
    // The places limit it. 333 tokens have come back since.
    let limited = (vec![1, 0, 29_000], vec![[0, 60, 59, -1, 1], [1, 20_000, 333, 1, 59]]);
    assert_eq!(ask(&reserve("call-9, 500")), limited);
    assert_eq!(ask(&format!("{SETTLE} call-7 430")), (vec![1], vec![[0, 20_000, 403, -1, 59]]));
    assert_eq!(ask(&format!("{SETTLE} call-7 430")), (vec![2], vec![[0, 20_000, 403, -1, 59]]));
    assert_eq!(ask(&format!("{SETTLE} call-5 430")), (vec![0], vec![]));
    assert_eq!(ask(&format!("{SETTLE} call-8 21000")), (vec![1], vec![[1, 20_000, 0, 4, 64]]));
    // Calls in flight alone need no limiter.
    for (line, expected) in [
        ("reserve 1 model a 30000 2 0 keep", vec![0, 1, -1]),
        ("reserve 1 model b 20000 2 0 keep", vec![0, 0, -1]),
        ("reserve 1 model c 30000 2 0 keep", vec![1, 0, 20_000]),
        ("settle 1 model a 0", vec![1]),
        ("settle 1 model a 0", vec![2]),
        ("reserve 1 model c 30000 2 0 keep", vec![0, 0, -1]),
        ("reserve 1 model d 30000 0 0 keep", vec![0, -1, -1]),
    ] {
        assert_eq!(ask(&format!("FCALL {line}")), (expected, vec![]), "{line}");
    }
}

/// Makes calls, each so many seconds after the start. Returns the five integers that the last one's first limiter has.
fn lives(calls: &[(i64, &str)]) -> Row {
    let (clock, _server, mut connection) = start();
    let ask = |(seconds, line): &(i64, &str)| {
        clock.set(START + seconds * 1_000 * MILLISECOND);
        ask(&mut connection, line).unwrap_or_else(|error| panic!("{line}: {error}")).1
    };
    calls.iter().map(ask).last().unwrap()[0]
}

#[test]
fn an_amount_is_given_back_after_an_earlier_one_is_given_up() {
    needs!("functions, Redis 7");
    // Others use the limiter, so that it is never full.
    let calls = [
        (0, "CL.CHARGE L 99 100 100 50"),
        (0, "FCALL reserve 2 H L a 1000 0 10 give_back 99 100 100 amount"),
        (0, "FCALL reserve 2 H L b 150000 0 40 give_back 99 100 100 amount"),
        (2, "FCALL reserve 1 H c 3600000 0 0 keep"),
        (60, "CL.CHARGE L 99 100 100 60"),
        (120, "CL.CHARGE L 99 100 100 60"),
        (151, "FCALL reserve 1 H d 3600000 0 0 keep"),
        (151, "FCALL reserve 2 H L e 1000 0 0 keep 99 100 100 amount"),
    ];
    assert_eq!(lives(&calls), [0, 100, 71, -1, 29]);
}

#[test]
fn an_amount_is_not_given_back_to_a_limiter_that_has_been_full_since() {
    needs!("functions, Redis 7");
    let calls = [
        (0, "FCALL reserve 2 H L a 1000 0 100 give_back 99 100 60 amount"),
        (0, "FCALL reserve 1 H b 7200000 0 0 keep"),
        (3_600, "CL.CHARGE L 99 100 60 100"),
        (3_600, "FCALL reserve 2 H L c 1000 0 100 keep 99 100 60 amount"),
    ];
    assert_eq!(lives(&calls), [1, 100, 0, 60, 60]);
}

#[test]
fn a_late_settlement_is_charged_once_however_long_its_limiter_was_in_use() {
    needs!("functions, Redis 7");
    let calls = [
        (0, "CL.CHARGE L 99 100 60 40"),
        (0, "FCALL reserve 2 H L a 60000 0 50 give_back 99 100 60 amount"),
        (30, "CL.CHARGE L 99 100 60 50"),
        (60, "CL.CHARGE L 99 100 60 50"),
        (61, "FCALL reserve 1 H b 60000 0 0 keep"),
        (90, "CL.CHARGE L 99 100 60 50"),
        (120, "CL.CHARGE L 99 100 60 50"),
        (130, "FCALL settle 2 H L a 50"),
    ];
    // The limiter is charged 290 tokens, which come back in 174 s.
    assert_eq!(lives(&calls), [0, 100, 26, -1, 44]);
}

#[test]
fn amounts_whose_sum_is_no_exact_number_of_lua_are_given_back_whole() {
    needs!("functions, Redis 7");
    let quota = "11999999999999987 1000000000 1 amount";
    let mut lines: Vec<_> =
        (0..12).map(|id| format!("FCALL reserve 2 H L {id} 1 0 999999999999999 give_back {quota}")).collect();
    lines.extend(["FCALL settle 1 H other 0".to_string(), format!("FCALL reserve 2 H L new 1 0 0 keep {quota}")]);
    let calls: Vec<_> = lines.iter().enumerate().map(|(number, line)| (number as i64 / 12, line.as_str())).collect();
    assert_eq!(lives(&calls)[2], 11_999_999_999_999_988);
}

/// A server would otherwise stand still after a time in which thousands of callers have died.
#[test]
fn a_call_ends_500_leases_and_its_own_and_the_next_calls_end_the_others() {
    needs!("functions, Redis 7");
    let (clock, _server, mut connection) = start();
    let mut pipeline = redis::pipe();
    for number in 0..700 {
        let lease = 60_000 + number;
        let call = format!("FCALL reserve 2 H L {number} {lease} 0 1 give_back 999 1000 86400 amount");
        pipeline.add_command(command(&call));
    }
    pipeline.query::<Vec<Value>>(&mut connection).unwrap();
    clock.set(START + 70_000 * MILLISECOND);
    assert_eq!(integer(&mut connection, "FCALL_RO reservations 1 H"), 0);
    let mut settle = |id| ask(&mut connection, &format!("FCALL settle 2 H L {id} 3")).unwrap().1[0][2];
    assert_eq!([settle(699), settle(698)], [300 + 500 + 1 - 3, 300 + 700 - 3 - 3]);
}

#[test]
fn a_call_with_bad_input_changes_nothing() {
    needs!("functions, Redis 7");
    let (clock, _server, mut connection) = start();
    for line in ["SET {a}:text x", "RPUSH {a}:list x", "ZADD {a}:zset 5 x"] {
        run::<()>(&mut connection, line).unwrap();
    }
    for call in ["held 90000 0 500 give_back", "dead 30000 0 500 give_back", "done 90000 0 500 keep"] {
        ask(&mut connection, &format!("{RESERVE} {call} {QUOTAS}")).unwrap();
    }
    for line in [&format!("{SETTLE} done 500"), "FCALL settle 1 {a}:calls unknown 500"] {
        ask(&mut connection, line).unwrap();
    }
    let slow = "FCALL reserve 3 {a}:calls {a}:fast {a}:slow two 90000 0 5 keep 9 10 600 amount 9 1 86400 amount";
    ask(&mut connection, slow).unwrap();
    let many = |limiters| {
        let keys: String = (0..limiters).map(|number| format!(" {{a}}:{number}")).collect();
        format!("reserve {} {{a}}:calls{keys} many 1000 0 1 keep{}", limiters + 1, " 9 10 60 amount".repeat(limiters))
    };
    assert_eq!(ask(&mut connection, &format!("FCALL {}", many(1_000))).unwrap().1.len(), 1_000);
    // The lease of "dead" has ended: the next call would give its amount back.
    clock.set(START + 30_000 * MILLISECOND);
    let before = everything(&mut connection);
    let tokens = "3 {a}:calls {a}:requests {a}:tokens";
    for (line, expected) in [
        (format!("reserve {tokens} new 30000 16 500 keep 59 60 60 1 19999 20000 60"), "wrong number of arguments"),
        ("reserve 0".to_string(), "wrong number of arguments"),
        (many(1_001), "too many limiters"),
        ("reservations 0".to_string(), "wrong number of arguments"),
        ("reservations 2 {a}:calls {a}:requests".to_string(), "wrong number of arguments"),
        ("reservations 1 {a}:calls held".to_string(), "wrong number of arguments"),
        (format!("reserve {tokens} new 0 16 500 keep {QUOTAS}"), "lease must be a whole number from 1 "),
        (format!("reserve {tokens} new 30000 -1 500 keep {QUOTAS}"), "places must be a whole number from 0 "),
        (format!("reserve {tokens} new 30000 16 -500 keep {QUOTAS}"), "amount must be a whole number from 0 "),
        (format!("reserve {tokens} new 30000 16 5e2 keep {QUOTAS}"), "amount must be a whole number from 0 "),
        (format!("reserve {tokens} new 30000 16 9999999999999999 keep {QUOTAS}"), "amount must be a whole number "),
        (format!("reserve {tokens} new 30000 16 500 lose {QUOTAS}"), "the lease's end must be keep or give_back"),
        (format!("reserve {tokens} new 30000 16 5 keep 59 60 60 -1 9 10 60 amount"), "a number that a limiter takes "),
        (format!("reserve {tokens} new 30000 16 5 keep 59 60 60 x 9 10 60 amount"), "a number that a limiter takes "),
        (format!("reserve {tokens} new 30000 16 5 keep 59 0 60 1 9 10 60 amount"), "count must be 1 or more"),
        (format!("reserve {tokens} new 30000 1 5 keep 59 0 60 1 9 10 60 amount"), "count must be 1 or more"),
        (format!("reserve 3 {{a}}:calls {{a}}:r {{a}}:r new 1 0 5 keep {QUOTAS}"), "a key is there twice"),
        (format!("reserve 3 {{a}}:c {{a}}:c {{a}}:r new 1 0 5 keep {QUOTAS}"), "a key is there twice"),
        (format!("reserve 3 {{a}}:calls {{a}}:r {{a}}:text new 1 0 5 keep {QUOTAS}"), "the key holds no rate limiter"),
        (format!("reserve 3 {{a}}:calls {{a}}:r {{a}}:list new 1 0 5 keep {QUOTAS}"), "Operation against a key "),
        (format!("reserve 3 {{a}}:list {{a}}:r {{a}}:s new 1 0 5 keep {QUOTAS}"), "Operation against a key "),
        (format!("reserve 3 {{a}}:zset {{a}}:r {{a}}:s new 1 0 5 keep {QUOTAS}"), "the key holds no reservations"),
        (format!("reserve {tokens} done 30000 16 500 keep {QUOTAS}"), "id: this call is settled"),
        (format!("reserve {tokens} unknown 30000 16 500 keep {QUOTAS}"), "id: this call is settled"),
        (format!("reserve {tokens} dead 30000 16 500 give_back {QUOTAS}"), "id: the lease of this call has ended"),
        (format!("reserve {tokens} held 30000 16 501 give_back {QUOTAS}"), "id: this call has reserved with other "),
        (format!("settle {tokens} held"), "wrong number of arguments"),
        (format!("settle {tokens} held -1"), "used must be a whole number from 0 "),
        ("settle 2 {a}:calls {a}:requests held 5".to_string(), "the keys lack a limiter that took the amount"),
        // The first limiter is charged before the second cannot be.
        ("settle 3 {a}:calls {a}:fast {a}:slow two 1000000".to_string(), "quantity: the tokens would be back only "),
        ("renew 1 {a}:calls held 0".to_string(), "lease must be a whole number from 1 "),
        ("renew 1 {a}:calls held".to_string(), "wrong number of arguments"),
        ("renew 1 {a}:list held 5".to_string(), "Operation against a key "),
    ] {
        let error = error_of(&mut connection, &format!("FCALL {line}"));
        let (code, text) = error.split_once(' ').unwrap();
        assert!(matches!(code, "ERR" | "WRONGTYPE") && text.starts_with(expected), "{line}: {error}");
        assert_eq!(everything(&mut connection), before, "{line}");
    }
}

/// A server at maxmemory would otherwise keep places taken and tokens charged until the leases end.
#[test]
fn calls_settle_and_renew_at_maxmemory_and_none_is_reserved() {
    needs!("functions, Redis 7");
    let (_clock, _server, mut connection) = start();
    for id in ["more", "less", "long"] {
        ask(&mut connection, &format!("{RESERVE} {id} 30000 0 500 keep {QUOTAS}")).unwrap();
    }
    run::<()>(&mut connection, "CONFIG SET maxmemory 1").unwrap();
    assert_eq!(ask(&mut connection, &format!("{SETTLE} more 600")).unwrap().1[0][2], 18_400);
    assert_eq!(ask(&mut connection, &format!("{SETTLE} less 0")).unwrap().1[0][2], 18_900);
    assert_eq!(integer(&mut connection, "FCALL renew 1 {a}:calls long 60000"), 1);
    assert_eq!(integer(&mut connection, "FCALL_RO reservations 1 {a}:calls"), 1);
    for id in ["new", "long"] {
        let error = error_of(&mut connection, &format!("{RESERVE} {id} 30000 0 500 keep {QUOTAS}"));
        assert!(error.starts_with("OOM "), "{id}: {error}");
    }
}

#[test]
fn a_user_needs_the_rights_that_the_page_names_and_without_one_of_them_nothing_is_half_done() {
    needs!("functions, Redis 7");
    let (clock, server, mut connection) = start();
    let rights = permissions("budgets.md", "## A reservation");
    let numbers = "999 1000 60 amount 999 1000 60 amount";
    // Each call finds a lease that has ended, whose amount is to be given back to two limiters.
    let calls = [
        format!("FCALL reserve 3 {{a}}:calls {{a}}:one {{a}}:two new 30000 1 500 give_back {numbers}"),
        format!("FCALL reserve 3 {{a}}:calls {{a}}:one {{a}}:two new 30000 2 500 give_back {numbers}"),
        "FCALL settle 3 {a}:calls {a}:one {a}:two held 430".to_string(),
        "FCALL settle 3 {a}:calls {a}:one {a}:two unknown 430".to_string(),
        "FCALL renew 1 {a}:calls held 70000".to_string(),
        "FCALL_RO reservations 1 {a}:calls".to_string(),
    ];
    for missing in [None].into_iter().chain(rights.iter().map(Some)) {
        let mut refused = 0;
        let but = missing.map(|right| right.replace('+', "-")).unwrap_or_default();
        let user = format!("ACL SETUSER app reset on nopass ~{{a}}:* {} {but}", rights.join(" "));
        run::<()>(&mut connection, &user).unwrap();
        let mut app = server.connect();
        run::<()>(&mut app, "AUTH app x").unwrap();
        for call in &calls {
            clock.set(START);
            run::<()>(&mut connection, "FLUSHALL").unwrap();
            for call in ["dead 1000", "held 60000"] {
                let line = format!("FCALL reserve 3 {{a}}:calls {{a}}:one {{a}}:two {call} 0 100 give_back {numbers}");
                ask(&mut connection, &line).unwrap();
            }
            clock.set(START + 2_000 * MILLISECOND);
            let before = everything(&mut connection);
            if let Err(error) = run::<Value>(&mut app, call) {
                refused += 1;
                // Servers have different words for it, and Redis 7.0 has no code in a function.
                let text = error.to_string();
                let right = ["NoPerm", "no permissions", "can't run this"].iter().any(|words| text.contains(words));
                assert!(right, "{call} {but}: {error}");
                assert_eq!(everything(&mut connection), before, "{call} {but}");
            }
        }
        assert_eq!(refused > 0, missing.is_some(), "{but}");
    }
}

#[test]
fn calls_repeated_late_and_in_any_order_are_those_of_a_model() {
    needs!("functions, Redis 7");
    let (clock, _server, connection) = start();
    live_through(&[&clock], connection, 300, |_, _| None);
}
