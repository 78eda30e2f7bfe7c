//! docs/budgets/reservation.lua: a call is reserved once and settled once, and an error changes nothing.

use std::collections::BTreeMap;

use redis::Connection;

use crate::support::clock::{Clock, MILLISECOND};
use crate::support::needs::{FUNCTIONS, needs};
use crate::support::random::Random;
use crate::support::recipes::{Row, START, ask, load_function, read, user};
use crate::support::{Server, Snapshot, error_of, error_text, run, snapshot};

/// Starts a server with the functions. Returns also a connection of a user with the rights of the page.
fn start() -> (Clock, Server, Connection, Connection) {
    let (clock, server, mut connection) = Clock::start(START);
    load_function(&mut connection, &read("../budgets/reservation.lua")).unwrap();
    let app = user(&server, "docs/budgets.md", "## A reservation");
    (clock, server, connection, app)
}

/// The calls that hold one of the places at a time.
const PLACES: usize = 4;
/// The limiters of all and of each of three users: max_burst, tokens that come back in a period, and this in seconds. A
/// token takes no whole number of nanoseconds.
const LIMITERS: [[i64; 3]; 4] = [[2_010, 2_011, 60], [2_013, 2_014, 2], [10_054, 20_011, 60], [1_021, 20_011, 3_600]];

/// Returns the numbers of a limiter and a quantity, as a call has them.
fn numbers(limiter: usize, quantity: i64) -> String {
    let [max_burst, count, period] = LIMITERS[limiter];
    format!("{max_burst} {count} {period} {quantity}")
}

/// The words that a call sends again whenever it repeats: its user, lease and estimate.
type Terms = (usize, i64, i64);

/// A call; the ends of its lease and of its key, in ms since the start.
struct Call {
    terms: Terms,
    is_settled: bool,
    held: i64,
    known: i64,
}

/// The rule a second time. Each limiter has a twin, to which the model makes the plain calls that the functions should
/// make: a call takes its estimate, and then the difference to what it has used. The stored states are equal.
struct Model {
    connection: Connection,
    now: i64,
    calls: BTreeMap<usize, Call>,
}

impl Model {
    fn held(&self) -> impl Iterator<Item = &Call> {
        self.calls.values().filter(|call| !call.is_settled && call.held > self.now)
    }

    /// Returns what happens, which is the text of an error if there is no answer, and the answer.
    fn reserve(&mut self, id: usize, terms @ (user, lease, estimate): Terms) -> (&'static str, Vec<i64>) {
        match self.calls.get(&id) {
            Some(call) if call.is_settled => return ("this call is settled", vec![]),
            Some(call) if call.terms != terms => return ("this call has reserved with other words", vec![]),
            Some(call) if call.held <= self.now => return ("the lease of this call has ended", vec![]),
            Some(_) => return ("reserved again", vec![0]),
            None => {}
        }
        if self.held().count() >= PLACES {
            let first = self.held().map(|call| call.held - self.now).min().unwrap();
            return ("no place", vec![0, (first + 999) / 1_000]);
        }
        let twins = [0, user].map(|limiter| format!("{{a}}:twin{limiter} {}", numbers(limiter, estimate)));
        let call = format!("CL.MTHROTTLE {}", twins.join(" "));
        let (limited, all, own): (i64, Row, Row) = run(&mut self.connection, &call).unwrap();
        if limited == 1 {
            let [all, own] = [all, own].map(|row| if row[0] == 1 { row[3] } else { 0 });
            return ("limited", if all >= own { vec![1, all] } else { vec![2, own] });
        }
        let (held, known) = (self.now + lease, self.now + 10 * lease);
        self.calls.insert(id, Call { terms, is_settled: false, held, known });
        ("reserved", vec![0])
    }

    fn renew(&mut self, id: usize, lease: i64) -> (&'static str, Vec<i64>) {
        let now = self.now;
        let Some(call) = self.calls.get_mut(&id).filter(|call| !call.is_settled && call.held > now) else {
            return ("not renewed", vec![0]);
        };
        (call.held, call.known) = (now + lease, now + 10 * lease);
        ("renewed", vec![1])
    }

    fn settle(&mut self, id: usize, terms: Terms, used: i64) -> (&'static str, Vec<i64>) {
        let Some(call) = self.calls.get_mut(&id) else {
            self.calls.insert(id, Call { terms, is_settled: true, held: 0, known: self.now + 60_000 });
            return ("settled first", vec![0]);
        };
        if call.is_settled {
            return ("settled again", vec![2]);
        }
        call.is_settled = true;
        let (user, _, estimate) = call.terms;
        let name = if call.held > self.now { "settled" } else { "settled late" };
        for limiter in [0, user] {
            let charge = format!("CL.CHARGE {{a}}:twin{limiter} {}", numbers(limiter, used - estimate));
            run::<Row>(&mut self.connection, &charge).unwrap();
        }
        (name, vec![1])
    }
}

/// Makes calls at random moments and compares each with the model: new ones, and old ones again, in any order, from
/// callers whose answers were lost or who have died.
#[test]
#[ignore = "slow: thousands of calls"]
fn calls_are_those_of_a_model_in_whatever_order_they_are_repeated() {
    needs!(FUNCTIONS);
    let (clock, _server, connection, mut app) = start();
    let mut model = Model { connection, now: 0, calls: BTreeMap::new() };
    let (mut random, mut all, mut counts) = (Random::new(2026), Vec::<Terms>::new(), BTreeMap::new());
    for step in 0..5_000 {
        let quiet = if random.one_in(400) { 100_000 } else { random.below(14_000) } as i64;
        model.now += random.below(100) as i64 + if random.one_in(20) { quiet } else { 0 };
        model.calls.retain(|_, call| call.known >= model.now);
        clock.set(START + model.now * MILLISECOND);
        let is_new = all.is_empty() || random.one_in(3);
        if is_new {
            let (longest, estimate) = (if random.one_in(2) { 180 } else { 30_000 }, random.below(200) as i64);
            all.push((1 + random.below(3), 20 + random.below(longest) as i64, estimate));
        }
        let id = all.len() - 1 - if is_new { 0 } else { random.below(all.len().min(16)) };
        // The caller changes its estimate, which is an error if the call is known.
        all[id].2 += i64::from(random.one_in(5));
        let terms @ (user, lease, estimate) = all[id];
        let keys = format!("{{a}}:call-{id} {{a}}:calls {{a}}:0 {{a}}:{user}");
        let used = random.below(2 * estimate as usize + 1) as i64;
        let (line, (name, expected)) = match if is_new { 0 } else { random.below(10) } {
            0..3 => {
                let of_each = [0, user].map(|limiter| numbers(limiter, estimate)).join(" ");
                (format!("FCALL reserve 4 {keys} {lease} {PLACES} {of_each}"), model.reserve(id, terms))
            }
            3..5 => (format!("FCALL renew 2 {{a}}:call-{id} {{a}}:calls {lease}"), model.renew(id, lease)),
            _ => (format!("FCALL settle 4 {keys} {used} {used}"), model.settle(id, terms, used)),
        };
        *counts.entry(name).or_insert(0) += 1;
        let place = format!("step {step} at {}: {line}: {name}", model.now);
        match ask(&mut app, &line) {
            Ok(answer) => assert_eq!(answer, expected, "{place}"),
            Err(error) => assert!(expected.is_empty() && error_text(&error).contains(name), "{place}: {error}"),
        }
        let keys = [0, 1, 2, 3].map(|limiter| format!("{{a}}:{limiter} {{a}}:twin{limiter}"));
        let states: Vec<Option<i64>> = run(&mut model.connection, &format!("MGET {}", keys.join(" "))).unwrap();
        assert!(states.chunks(2).all(|pair| pair[0] == pair[1]), "{place}: {states:?}");
        let held = ask(&mut app, "FCALL_RO reservations 1 {a}:calls").unwrap();
        assert_eq!(held, [model.held().count() as i64], "{place}");
    }
    assert!(counts.len() == 13 && counts.values().all(|&count| count > 16), "{counts:?}");
    clock.set(START + (model.now + 366 * 86_400_000) * MILLISECOND);
    let keys: Vec<String> = run(&mut model.connection, "KEYS *").unwrap();
    assert!(keys.is_empty(), "these keys stay: {keys:?}");
}

#[test]
fn without_places_a_call_is_reserved_once_and_settled_once() {
    needs!(FUNCTIONS);
    let (_clock, _server, _, mut app) = start();
    for (line, expected) in [
        ("reserve 2 c limiter 1000 9 10 60 10", vec![0]),
        // The answer was lost, and the caller repeats the call.
        ("reserve 2 c limiter 1000 9 10 60 10", vec![0]),
        ("reserve 2 d limiter 1000 9 10 60 1", vec![1, 6]),
        ("reserve 3 d other limiter 1000 9 10 60 11 9 10 60 1", vec![1, -1]),
        ("settle 2 c limiter 9", vec![1]),
        ("settle 2 c limiter 9", vec![2]),
        ("settle 2 d limiter 9", vec![0]),
        ("reserve 2 e limiter 1000 9 10 60 1", vec![0]),
        // Redis 7.2 writes such a number of a script as 1e+09.
        ("reserve 2 f large 1000 1999999999 2000000000 60 1000000000", vec![0]),
        ("settle 2 f large 0", vec![1]),
        ("reserve 2 g large 1000 1999999999 2000000000 60 2000000000", vec![0]),
    ] {
        assert_eq!(ask(&mut app, &format!("FCALL {line}")).unwrap(), expected, "{line}");
    }
}

/// Returns the state of every key, and the holds.
fn everything(connection: &mut Connection) -> (Snapshot, Vec<String>) {
    (snapshot(connection), run(connection, "ZRANGE {a}:calls 0 -1 WITHSCORES").unwrap())
}

const OLD: &str = "4 {a}:old {a}:calls {a}:requests {a}:tokens";
const NEW: &str = "reserve 4 {a}:new {a}:calls {a}:requests {a}:tokens 30000 2 59 60 60 1 19999 20000 60 5";

#[test]
fn a_call_that_fails_changes_nothing() {
    needs!(FUNCTIONS);
    let (clock, _server, mut connection, mut app) = start();
    let [two, broken] = ["3 {a}:two {a}:fast {a}:slow", "3 {a}:half {a}:broken {a}:slow"];
    let cut = "3 {a}:cut {a}:full {a}:slow";
    for call in [
        format!("{OLD} 30000 2 59 60 60 1 19999 20000 60 500"),
        format!("{two} 90000 9 10 600 5 9 1 86400 5"),
        format!("{broken} 90000 9 10 600 5 9 1 86400 1"),
        // These five are back within a second.
        format!("{cut} 90000 9 10 1 5 9 1 86400 1"),
    ] {
        assert_eq!(ask(&mut app, &format!("FCALL reserve {call}")).unwrap(), [0], "{call}");
    }
    run::<()>(&mut connection, "SET {a}:broken x").unwrap();
    let before = everything(&mut connection);
    // Without one of these rights, a call would fail after its first change.
    let [settle, renew] = [format!("settle {OLD} 0 600"), "renew 2 {a}:old {a}:calls 1000".to_string()];
    for (right, lines) in [
        ("set", vec![NEW, "reserve 2 {a}:one {a}:tokens 30000 19999 20000 60 5", &settle]),
        ("zadd", vec![NEW, &renew]),
        ("pexpire", vec![NEW, &renew]),
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

    // The lease of the old call has ended, so that a new one takes its place.
    clock.set(START + 30_000 * MILLISECOND);
    let before = everything(&mut connection);
    let reserve = [
        ("60 5", "60", "wrong number of arguments"),
        // An estimate below 0 would give tokens back, and one of 16 digits is not exact.
        ("60 5", "60 -5", "limiter 2 needs a key of its own, and an estimate"),
        ("60 5", "60 9999999999999999", "limiter 2 needs a key of its own, and an estimate"),
        ("requests", "new", "limiter 1 needs a key of its own, and an estimate"),
        ("calls", "new", "the call needs a key of its own"),
        ("30000", "0", "lease must be a whole number"),
        ("30000 2", "30000 0", "places must be a whole number"),
        ("19999 20000", "19999 0", "count must be 1 or more"),
    ];
    let reserve = reserve.map(|(from, to, error)| (NEW.replacen(from, to, 1), error));
    let others = [
        (format!("settle {OLD} 500"), "wrong number of arguments"),
        (format!("settle {OLD} 1 -1"), "what was used must be a whole number of at most 15 digits (limiter 2)"),
        // The first limiter is charged, or would be given back to, and the second cannot be charged so much.
        (format!("settle {two} 1000000 1000000"), "quantity: the tokens would be back only"),
        (format!("settle {two} 0 1000000"), "quantity: the tokens would be back only"),
        // A refund to a full limiter changes nothing, and could not be undone.
        (format!("settle {cut} 0 1000000"), "quantity: the tokens would be back only"),
        (format!("settle {broken} 0 0"), "the key holds no rate limiter"),
        ("renew 2 {a}:old {a}:calls 1e4".to_string(), "lease must be a whole number"),
    ];
    for (line, expected) in reserve.into_iter().chain(others) {
        let error = error_of(&mut app, &format!("FCALL {line}"));
        assert!(error.starts_with(&format!("ERR {expected}")), "{line}: {error}");
        assert_eq!(everything(&mut connection), before, "{line}");
    }
}

/// Some of these names would be one text if spaces alone were between them.
#[test]
fn a_call_is_settled_by_the_keys_that_it_has_reserved_and_by_no_others() {
    needs!(FUNCTIONS);
    let (_clock, _server, mut connection, mut app) = start();
    let mut call = |function: &str, words: &str| {
        let words = words.replace("LIMITER", "9|10|60|5");
        redis::cmd("FCALL").arg(function).arg(words.split('|').collect::<Vec<_>>()).query::<i64>(&mut app)
    };
    let all = [
        ("2|call|x|30000|LIMITER", "2|call|x|9"),
        ("2|call|x y|30000|LIMITER", "2|call|x y|9"),
        ("2|call|x of 9 10 60 5|30000|LIMITER", "2|call|x of 9 10 60 5|9"),
        ("3|call|x|y|30000|LIMITER|LIMITER", "3|call|x|y|9|9"),
        ("3|call|y|x|30000|LIMITER|LIMITER", "3|call|y|x|9|9"),
        // The first key is the holds.
        ("3|call|x|y|30000|4|LIMITER", "3|call|x|y|9"),
    ];
    for (reserve, settle) in all {
        run::<()>(&mut connection, "FLUSHALL").unwrap();
        assert_eq!(call("reserve", reserve), Ok(0), "{reserve}");
        for (other, its_settle) in all.into_iter().filter(|(other, _)| *other != reserve) {
            for answer in [call("reserve", other), call("settle", its_settle)] {
                let error = error_text(&answer.expect_err(other));
                assert!(error.contains("reserved with other words"), "{reserve}, {other}: {error}");
            }
        }
        assert_eq!(call("settle", settle), Ok(1), "{reserve}");
    }
}

/// A server at maxmemory would otherwise keep places taken and tokens charged until the leases end.
#[test]
fn calls_end_at_maxmemory_and_none_is_reserved() {
    needs!(FUNCTIONS);
    let (_clock, _server, mut connection, mut app) = start();
    ask(&mut app, &format!("FCALL {NEW}")).unwrap();
    run::<()>(&mut connection, "CONFIG SET maxmemory 1").unwrap();
    for call in ["renew 2 {a}:new {a}:calls 60000", "settle 4 {a}:new {a}:calls {a}:requests {a}:tokens 1 600"] {
        assert_eq!(ask(&mut app, &format!("FCALL {call}")).unwrap(), [1]);
    }
    assert_eq!(ask(&mut app, "FCALL_RO reservations 1 {a}:calls").unwrap(), [0]);
    assert!(error_of(&mut app, &format!("FCALL {NEW}")).starts_with("OOM "));
}
