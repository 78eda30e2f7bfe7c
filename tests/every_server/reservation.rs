//! docs/recipes/reservation.lua: a call is reserved and settled once, whatever is lost, repeated, late or killed.

use std::collections::BTreeMap;

use redis::{Connection, ConnectionLike, RedisResult, Value};

use crate::support::clock::Clock;
use crate::support::cluster::{SLOTS, add_slots, is_ok};
use crate::support::needs::needs;
use crate::support::random::Random;
use crate::support::recipes::{MILLISECOND, START, load_function, permissions, read};
use crate::support::replication::{catch_up, replicate};
use crate::support::{Server, command, error_of, run, snapshot, wait_until};

fn load(server: &Server) -> Connection {
    let mut connection = server.connect();
    load_function(&mut connection, &read("reservation.lua")).unwrap();
    connection
}

fn start() -> (Clock, Server, Connection) {
    let (clock, server) = Clock::start(START);
    let connection = load(&server);
    (clock, server, connection)
}

type Row = [i64; 5];

/// A reply: its integers, and the five integers of each limiter.
type Reply = (Vec<i64>, Vec<Row>);

fn ask(connection: &mut impl ConnectionLike, line: &str) -> RedisResult<Reply> {
    let reply: Vec<Value> = run(connection, line)?;
    let (rows, integers): (Vec<_>, _) = reply.into_iter().partition(|value| matches!(value, Value::Array(_)));
    let integers = integers.into_iter().map(redis::from_redis_value).collect::<Result<_, _>>()?;
    Ok((integers, rows.into_iter().map(redis::from_redis_value).collect::<Result<_, _>>()?))
}

fn integer(connection: &mut impl ConnectionLike, line: &str) -> i64 {
    run(connection, line).unwrap_or_else(|error| panic!("{line}: {error}"))
}

/// Returns everything in the database: the limiters, and the holds with their expiry.
fn everything(connection: &mut Connection) -> String {
    let holds: Vec<Value> = run(connection, "ZRANGE {a}:calls 0 -1 WITHSCORES").unwrap();
    format!("{holds:?} {} {:?}", integer(connection, "PEXPIRETIME {a}:calls"), snapshot(connection))
}

const RESERVE: &str = "FCALL reserve 3 {a}:calls {a}:requests {a}:tokens";
const SETTLE: &str = "FCALL settle 3 {a}:calls {a}:requests {a}:tokens";
const QUOTAS: &str = "59 60 60 1 19999 20000 60 amount";

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
    // The lease of "dead" has ended: the next call would give its amount back.
    clock.set(START + 30_000 * MILLISECOND);
    let before = everything(&mut connection);
    let tokens = "3 {a}:calls {a}:requests {a}:tokens";
    for (line, expected) in [
        (format!("reserve {tokens} new 30000 16 500 keep 59 60 60 1 19999 20000 60"), "wrong number of arguments"),
        ("reserve 0".to_string(), "wrong number of arguments"),
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
    let error = error_of(&mut connection, &format!("{RESERVE} new 30000 0 500 keep {QUOTAS}"));
    assert!(error.starts_with("OOM "), "{error}");
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

/// The numbers of one call, which it sends again whenever it repeats.
#[derive(Clone, Copy)]
struct Terms {
    user: usize,
    lease: i64,
    amount: i64,
    gives_back: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Held,
    Ended,
    Settled,
    Unknown,
}

/// A call; the end of its lease, or of its receipt, in ms since the start; the tokens used, if it is settled.
struct Call {
    terms: Terms,
    state: State,
    ends: i64,
    used: i64,
}

impl Call {
    /// Returns the tokens that it is charged: those that it has used, or its amount, if that is not given back.
    fn cost(&self) -> i64 {
        match self.state {
            State::Unknown => 0,
            State::Settled => self.used,
            State::Ended if self.terms.gives_back => 0,
            _ => self.terms.amount,
        }
    }
}

const PLACES: i64 = 8;
const LEASES: i64 = 10;
/// The limiters of all and of each of three users: name, numbers, and the seconds after which an empty one is full.
const LIMITERS: [(&str, &str, i64); 4] = [
    ("all", "4010 4011 60", 60),
    ("user1", "1006 2014 60", 30),
    ("user2", "100054 20011 60", 300),
    ("user3", "40021 20011 3600", 7_200),
];
/// The tokens that come back to all in a minute. A token takes no whole number of nanoseconds.
const ALL: i64 = 4_011;

/// The rule a second time. Each limiter has a twin, to which the model makes the plain calls that the functions should
/// make: replies and stored states are equal.
struct Model<C> {
    connection: C,
    now: i64,
    calls: BTreeMap<usize, Call>,
    /// The amounts of leases that have ended, to be given back from the next call on, and the end of each.
    ended: Vec<(Terms, i64)>,
    /// The amount that each limiter is owed, and the moment after which it is full in any case.
    owed: [(i64, i64); 4],
    /// The tokens that calls are charged whose receipts are gone.
    past: i64,
    /// The calls on the twin of all.
    changes: i64,
    counts: BTreeMap<&'static str, usize>,
}

impl<C: ConnectionLike> Model<C> {
    fn at(&mut self, now: i64) {
        self.now = now;
        for call in self.calls.values_mut().filter(|call| call.state == State::Held && call.ends <= now) {
            if call.terms.gives_back && call.terms.amount > 0 {
                self.ended.push((call.terms, call.ends));
            }
            (call.state, call.ends) = (State::Ended, call.ends + LEASES * call.terms.lease);
        }
        self.past += self.calls.values().filter(|call| call.ends <= now).map(Call::cost).sum::<i64>();
        self.calls.retain(|_, call| call.ends > now);
    }

    fn held(&self) -> impl Iterator<Item = &Call> {
        self.calls.values().filter(|call| call.state == State::Held)
    }

    /// Charges the twin of a limiter. Returns its five integers.
    fn charge(&mut self, limiter: usize, quantity: i64) -> Row {
        let (name, numbers, _) = LIMITERS[limiter];
        self.changes += i64::from(limiter == 0);
        run(&mut self.connection, &format!("CL.CHARGE {{a}}:twin:{name} {numbers} {quantity}")).unwrap()
    }

    /// Gives back the amounts of leases that have ended to all and to this user. Returns whether there were any.
    fn give_back(&mut self, user: usize) -> bool {
        let (owed, until) = std::mem::take(&mut self.owed[user]);
        let owed = if until > self.now { owed } else { 0 };
        self.charge(user, -owed);
        let any = owed > 0 || !self.ended.is_empty();
        for (Terms { user: its, amount, .. }, ends) in std::mem::take(&mut self.ended) {
            self.charge(0, -amount);
            *self.counts.entry(if its == user { "given back" } else { "owed" }).or_default() += 1;
            let full = ends + LIMITERS[its].2 * 1_000;
            if its == user {
                self.charge(user, -amount);
            } else if full > self.now {
                let (owed, until) = self.owed[its];
                self.owed[its] = (if until > self.now { owed + amount } else { amount }, full.max(until));
            }
        }
        any
    }

    fn reserve(&mut self, id: usize, terms: Terms) -> Result<(&'static str, Reply), &'static str> {
        let known = self.calls.get(&id).map(|call| (call.state, call.terms.amount));
        match known {
            Some((State::Ended, _)) => return Err("the lease of this call has ended"),
            Some((State::Settled | State::Unknown, _)) => return Err("this call is settled"),
            Some((_, amount)) if amount != terms.amount => return Err("this call has reserved with other numbers"),
            _ => {}
        }
        self.give_back(terms.user);
        let held = self.held().count() as i64;
        let quantity = if known.is_some() { 0 } else { terms.amount };
        let [all, user] = [LIMITERS[0], LIMITERS[terms.user]]
            .map(|(name, numbers, _)| format!("{{a}}:twin:{name} {numbers} {quantity}"));
        let twins = [format!("{{a}}:twin:requests 999 1000 1 {}", i32::from(known.is_none())), all, user];
        if known.is_some() || held >= PLACES {
            let mut rows = twins.map(|twin| run::<Row>(&mut self.connection, &format!("CL.LOOK {twin}")).unwrap());
            if known.is_none() {
                let first = self.held().map(|call| call.ends - self.now).min().unwrap();
                return Ok(("no place", (vec![1, 0, first], rows.to_vec())));
            }
            rows.iter_mut().for_each(|row| (row[0], row[3]) = (0, -1));
            return Ok(("reserved again", (vec![0, PLACES - held, -1], rows.to_vec())));
        }
        let (integers, rows) = ask(&mut self.connection, &format!("CL.MTHROTTLE {}", twins.join(" "))).unwrap();
        if integers[0] == 1 {
            return Ok(("limited", (vec![1, PLACES - held, -1], rows)));
        }
        self.changes += 1;
        self.calls.insert(id, Call { terms, state: State::Held, ends: self.now + terms.lease, used: 0 });
        Ok(("reserved", (vec![0, PLACES - held - 1, -1], rows)))
    }

    fn renew(&mut self, id: usize, lease: i64) -> i64 {
        let call = self.calls.get_mut(&id).filter(|call| call.state == State::Held);
        call.map_or(0, |call| {
            (call.terms.lease, call.ends) = (lease, self.now + lease);
            1
        })
    }

    fn settle(&mut self, id: usize, terms: Terms, used: i64) -> (&'static str, Reply) {
        let now = self.now;
        let call = self.calls.entry(id).or_insert(Call { terms, state: State::Unknown, ends: 0, used: 0 });
        let (Terms { user, lease, amount, gives_back }, state) = (call.terms, call.state);
        let (name, first, quantity) = match state {
            State::Unknown => {
                call.ends = now + 60_000;
                self.give_back(user);
                return ("unknown", (vec![0], vec![]));
            }
            State::Held => ("settled", 1, used - amount),
            State::Ended => ("settled late", 1, used - if gives_back { 0 } else { amount }),
            State::Settled => ("settled again", 2, 0),
        };
        if first == 1 {
            (call.state, call.ends, call.used) = (State::Settled, now + LEASES * lease, used);
        }
        let mut rows = [0, user].map(|limiter| self.charge(limiter, quantity));
        if self.give_back(user) {
            rows = [0, user].map(|limiter| self.charge(limiter, 0));
        }
        (name, (vec![first], rows.to_vec()))
    }
}

/// Makes calls at random moments and compares each with the model: new ones, and old ones again, in any order, from
/// callers some of which die. `between` may send a line, lose its answer, kill the server, and return a connection to
/// its successor.
fn live_through<C: ConnectionLike>(
    clocks: &[&Clock],
    connection: C,
    steps: usize,
    mut between: impl FnMut(usize, &str) -> Option<C>,
) {
    let set = |now: i64| clocks.iter().for_each(|clock| clock.set(START + now * MILLISECOND));
    set(0);
    let (calls, counts, ended) = Default::default();
    let mut model = Model { connection, now: 0, calls, ended, owed: [(0, 0); 4], past: 0, changes: 0, counts };
    let (mut random, mut terms) = (Random::new(2026), Vec::<Terms>::new());
    // The limiter of all begins empty, so that it is never full: a full limiter gains no tokens.
    for key in ["all", "twin:all"] {
        run::<Row>(&mut model.connection, &format!("CL.CHARGE {{a}}:{key} {} {ALL}", LIMITERS[0].1)).unwrap();
    }
    for step in 0..steps {
        model.at(model.now + random.below(100) as i64 + if random.one_in(60) { 4_000 } else { 0 });
        set(model.now);
        let is_new = terms.is_empty() || random.one_in(3);
        if is_new {
            let (longest, amount) = (if random.one_in(4) { 180 } else { 6_000 }, random.below(120) as i64);
            let (user, lease) = (1 + random.below(3), 20 + random.below(longest) as i64);
            terms.push(Terms { user, lease, amount, gives_back: random.one_in(2) });
        }
        let id = terms.len() - 1 - if is_new { 0 } else { random.below(terms.len().min(24)) };
        terms[id].amount += i64::from(random.one_in(60));
        let Terms { user, lease, amount, gives_back } = terms[id];
        let (name, numbers, _) = LIMITERS[user];
        let used = random.below(2 * amount as usize + 1) as i64;
        let action = if is_new { 0 } else { random.below(10) };
        let line = match action {
            0..3 => {
                let ending = if gives_back { "give_back" } else { "keep" };
                let call = format!("call-{id} {lease} {PLACES} {amount} {ending}");
                let numbers = format!("999 1000 1 1 {} amount {numbers} amount", LIMITERS[0].1);
                format!("FCALL reserve 4 {{a}}:calls {{a}}:requests {{a}}:all {{a}}:{name} {call} {numbers}")
            }
            3..5 => format!("FCALL renew 1 {{a}}:calls call-{id} {lease}"),
            _ => format!("FCALL settle 3 {{a}}:calls {{a}}:all {{a}}:{name} call-{id} {used}"),
        };
        let successor = between(step, &line);
        let lost = successor.is_some();
        model.connection = successor.unwrap_or(model.connection);
        let place = format!("step {step} at {}: {line}", model.now);
        if let 3..5 = action {
            assert_eq!(integer(&mut model.connection, &line), model.renew(id, lease), "{place}");
        } else {
            let answer = ask(&mut model.connection, &line).map_err(|error| error.to_string());
            let expected =
                if action < 3 { model.reserve(id, terms[id]) } else { Ok(model.settle(id, terms[id], used)) };
            let expected = expected.map(|(name, reply)| {
                *model.counts.entry(name).or_default() += 1;
                reply
            });
            match (answer, expected) {
                // The line that was lost may have been carried out.
                (Ok((first, _)), Ok((expected, _))) if lost && expected == [1] => assert!(first[0] > 0, "{place}"),
                (Ok((first, _)), Ok((expected, _))) if lost => assert_eq!(first, expected, "{place}"),
                (Ok(answer), Ok(expected)) => assert_eq!(answer, expected, "{place}"),
                (Err(answer), Err(expected)) => assert!(answer.contains(expected), "{place}: {answer}"),
                (answer, expected) => panic!("{place}: {answer:?}, not {expected:?}"),
            }
        }
        for key in ["requests", "all", "user1", "user2", "user3"] {
            let states =
                run::<[Option<String>; 2]>(&mut model.connection, &format!("MGET {{a}}:{key} {{a}}:twin:{key}"));
            let [state, twin] = states.unwrap();
            assert_eq!(state, twin, "{place}: {key}");
        }
        let held = integer(&mut model.connection, "FCALL_RO reservations 1 {a}:calls");
        assert!(held <= PLACES && held == model.held().count() as i64, "{place}: {held} places");
        assert_ne!(integer(&mut model.connection, "PTTL {a}:calls"), -1, "{place}: the holds stay for ever");
    }
    // All that was charged is what was used, and the amounts that were kept or are held.
    let due: i64 = model.ended.iter().map(|(terms, _)| terms.amount).sum();
    let charged = ALL + model.past + due + model.calls.values().map(Call::cost).sum::<i64>();
    let expected = i128::from(charged) * 60_000_000_000 / i128::from(ALL);
    let rounding = i128::from(integer(&mut model.connection, "GET {a}:all") - START) - expected;
    println!("{:?}: {charged} tokens, to within {rounding} ns by {} calls", model.counts, model.changes);
    assert!(rounding.abs() <= i128::from(model.changes), "{rounding} ns");
    assert!(model.counts.len() == 10 && model.counts.values().all(|&count| count > steps / 200), "{:?}", model.counts);
    set(model.now + 366 * 86_400_000);
    let keys: Vec<String> = run(&mut model.connection, "KEYS *").unwrap();
    assert!(keys.is_empty(), "these keys stay: {keys:?}");
}

/// Sends a line, and does not wait for the answer.
fn send(server: &Server, line: &str) {
    server.connect().send_packed_command(&command(line).get_packed_command()).unwrap();
}

#[test]
#[ignore = "slow: thousands of calls"]
fn calls_lost_late_and_repeated_are_those_of_a_model_through_kills_with_an_aof() {
    needs!("functions, Redis 7");
    let (clock, mut server) = Clock::start_with(START, &["--appendonly", "yes", "--appendfsync", "always"]);
    let (connection, mut random) = (load(&server), Random::new(7));
    live_through(&[&clock], connection, 6_000, |_, line| {
        random.one_in(300).then(|| {
            send(&server, line);
            server.restart();
            server.connect()
        })
    });
}

#[test]
#[ignore = "slow: thousands of calls"]
fn calls_lost_late_and_repeated_are_those_of_a_model_through_failovers() {
    needs!("functions, Redis 7");
    let [(clock, primary), (other_clock, replica)] = [(); 2].map(|()| Clock::start(START));
    let connection = load(&primary);
    replicate(&replica, &primary);
    let mut pair = [primary, replica];
    live_through(&[&clock, &other_clock], connection, 2_000, |step, line| {
        (step % 500 == 499).then(|| {
            catch_up(&pair[1], &pair[0]);
            let [there, here] = [0, 1].map(|at| integer(&mut pair[at].connect(), "FCALL_RO reservations 1 {a}:calls"));
            assert_eq!(there, here);
            send(&pair[0], line);
            pair[0].kill();
            pair.swap(0, 1);
            run::<()>(&mut pair[0].connect(), "REPLICAOF NO ONE").unwrap();
            pair[1].restart();
            replicate(&pair[1], &pair[0]);
            pair[0].connect()
        })
    });
}

/// Within each move of the slot, the line is sent again and again while the keys are on both nodes.
#[test]
#[ignore = "slow: thousands of calls"]
fn calls_lost_late_and_repeated_are_those_of_a_model_through_moves_of_their_slot() {
    needs!("functions, Redis 7");
    // The clock jumps further than a node may be silent.
    let settings = ["--cluster-enabled", "yes", "--cluster-node-timeout", "1000000000"];
    let nodes = [(); 2].map(|()| Clock::start_with(START - 3_600_000 * MILLISECOND, &settings));
    let [(clock, first), (other_clock, second)] = &nodes;
    add_slots(&mut load(first), SLOTS / 2..SLOTS);
    add_slots(&mut load(second), 0..SLOTS / 2);
    run::<()>(&mut first.connect(), &format!("CLUSTER MEET 127.0.0.1 {}", second.port)).unwrap();
    let mut now = START - 3_600_000 * MILLISECOND;
    wait_until("both know the slots", || {
        now += 100 * MILLISECOND;
        nodes.iter().for_each(|(clock, _)| clock.set(now));
        is_ok(first) && is_ok(second)
    });
    let slot = integer(&mut first.connect(), "CLUSTER KEYSLOT {a}");
    let (mut from, mut to, mut random, mut tries) = (first, second, Random::new(8), BTreeMap::new());
    live_through(&[clock, other_clock], first.connect(), 2_000, |step, line| {
        (step % 100 == 99).then(|| {
            let [mut source, mut target] = [from, to].map(Server::connect);
            let [from_id, to_id] = [&mut source, &mut target].map(|node| run::<String>(node, "CLUSTER MYID").unwrap());
            let set = |node: &mut Connection, words: &str| run::<()>(node, &format!("CLUSTER SETSLOT {slot} {words}"));
            set(&mut target, &format!("IMPORTING {from_id}")).unwrap();
            set(&mut source, &format!("MIGRATING {to_id}")).unwrap();
            loop {
                let answer = run::<Value>(&mut source, line);
                let code = answer.err().and_then(|error| error.code().map(str::to_string)).unwrap_or_default();
                *tries.entry(code.clone()).or_insert(0) += 1;
                if code == "ASK" {
                    run::<()>(&mut target, "ASKING").unwrap();
                    let _ = run::<Value>(&mut target, line);
                }
                let keys: Vec<String> = run(&mut source, &format!("CLUSTER GETKEYSINSLOT {slot} 100")).unwrap();
                if keys.is_empty() {
                    break;
                }
                let key = &keys[random.below(keys.len())];
                run::<()>(&mut source, &format!("MIGRATE 127.0.0.1 {} {key} 0 5000", to.port)).unwrap();
            }
            set(&mut target, &format!("NODE {to_id}")).unwrap();
            set(&mut source, &format!("NODE {to_id}")).unwrap();
            std::mem::swap(&mut from, &mut to);
            from.connect()
        })
    });
    println!("{tries:?}");
    assert!(["", "ASK", "TRYAGAIN"].iter().all(|code| tries[*code] > 5), "{tries:?}");
    let split = RESERVE.replace("{a}:tokens", "tokens");
    let error = error_of(&mut from.connect(), &format!("{split} new 30000 0 500 keep {QUOTAS}"));
    assert!(error.starts_with("CROSSSLOT "), "{error}");
}
