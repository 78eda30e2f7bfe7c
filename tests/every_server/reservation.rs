//! docs/recipes/reservation.lua: a call is reserved and settled once, whatever is lost, repeated, late or killed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use redis::{Connection, ConnectionLike, RedisResult, Value};

use crate::support::clock::Clock;
use crate::support::cluster::{SLOTS, add_slots, is_ok};
use crate::support::needs::needs;
use crate::support::random::Random;
use crate::support::replication::{catch_up, replicate};
use crate::support::{Server, command, error_of, run, snapshot, wait_until};

/// A moment on a whole microsecond: functions read the time in microseconds.
const START: i64 = 1_790_000_000_123_456_000;
const MILLISECOND: i64 = 1_000_000;

fn load(connection: &mut Connection) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/recipes/reservation.lua");
    let library = fs::read_to_string(path).unwrap();
    redis::cmd("FUNCTION").arg("LOAD").arg("REPLACE").arg(library).exec(connection).unwrap();
}

fn start() -> (Clock, Server, Connection) {
    let (clock, server) = Clock::start(START);
    let mut connection = server.connect();
    load(&mut connection);
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

/// Returns everything in the database: the limiters, and the holds with their expiry.
fn everything(connection: &mut Connection) -> String {
    let holds: [Value; 2] = ["ZRANGE {a}:calls 0 -1 WITHSCORES", "PEXPIRETIME {a}:calls"]
        .map(|line| run(connection, line).unwrap_or_else(|error| Value::SimpleString(error.to_string())));
    format!("{holds:?} {:?}", snapshot(connection))
}

const RESERVE: &str = "FCALL reserve 3 {a}:calls {a}:requests {a}:tokens";
const SETTLE: &str = "FCALL settle 3 {a}:calls {a}:requests {a}:tokens";
const QUOTAS: &str = "59 60 60 1 19999 20000 60 amount";

#[test]
fn a_call_is_reserved_once_and_settled_once() {
    needs!("functions, Redis 7");
    let (clock, _server, mut connection) = start();
    let mut ask = |line: &str| ask(&mut connection, line).unwrap();
    let reserve = |ask: &mut dyn FnMut(&str) -> Reply, id: &str, amount: i64| {
        ask(&format!("{RESERVE} {id} 30000 2 {amount} keep {QUOTAS}"))
    };
    let first = (vec![0, 1, -1], vec![[0, 60, 59, -1, 1], [0, 20_000, 19_500, -1, 2]]);
    assert_eq!(reserve(&mut ask, "call-7", 500), first);
    assert_eq!(reserve(&mut ask, "call-7", 500), first, "the answer was lost, and the caller repeats the call");
    assert_eq!(reserve(&mut ask, "call-8", 19_501).0, [1, 1, -1], "the tokens limit it");
    assert_eq!(reserve(&mut ask, "call-8", 19_500).0, [0, 0, -1]);
    clock.set(START + 1_000 * MILLISECOND);
    // The places limit it. 333 tokens have come back since.
    let limited = (vec![1, 0, 29_000], vec![[0, 60, 59, -1, 1], [1, 20_000, 333, 1, 59]]);
    assert_eq!(reserve(&mut ask, "call-9", 500), limited);
    assert_eq!(ask(&format!("{SETTLE} call-7 430")), (vec![1], vec![[0, 20_000, 403, -1, 59]]));
    assert_eq!(ask(&format!("{SETTLE} call-7 430")), (vec![2], vec![[0, 20_000, 403, -1, 59]]));
    assert_eq!(ask(&format!("{SETTLE} call-5 430")), (vec![0], vec![]));
    assert_eq!(ask(&format!("{SETTLE} call-8 21000")), (vec![1], vec![[1, 20_000, 0, 4, 64]]));
}

/// A limiter of another user is not among the keys of the next call.
#[test]
fn an_amount_is_given_back_once_at_the_next_call_that_names_its_limiter() {
    needs!("functions, Redis 7");
    let (clock, _server, mut connection) = start();
    let mut reserve = |user: &str, id: &str| {
        let keys = format!("FCALL reserve 3 {{a}}:calls {{a}}:all {{a}}:{user}");
        let quotas = "999 1000 86400 amount 999 1000 86400 amount";
        ask(&mut connection, &format!("{keys} {id} 1000 1 400 give_back {quotas}")).unwrap()
    };
    let remaining = |reply: Reply| [reply.0[0], reply.1[0][2], reply.1[1][2]];
    assert_eq!(remaining(reserve("bob", "b1")), [0, 600, 600]);
    clock.set(START + 1_000 * MILLISECOND);
    assert_eq!(remaining(reserve("eve", "e1")), [0, 600, 600], "bob's 400 of all are back");
    clock.set(START + 20_000 * MILLISECOND);
    assert_eq!(remaining(reserve("bob", "b2")), [0, 600, 600], "bob's own 400 are back, and eve's of all");
    assert_eq!(run::<i64>(&mut connection, "FCALL_RO reservations 1 {a}:calls").unwrap(), 1);
    // b1 is settled late, for the tokens used, and frees no place.
    let settle = "FCALL settle 3 {a}:calls {a}:all {a}:bob b1 100";
    for first in [0, 0] {
        assert_eq!(ask(&mut connection, settle).unwrap(), (vec![first], vec![]), "its receipt was kept for ten leases");
    }
    clock.set(START + 21_000 * MILLISECOND);
    let settle = settle.replace("b1", "b2");
    for first in [1, 2] {
        let reply = ask(&mut connection, &settle).unwrap();
        assert_eq!((reply.0[0], reply.1[0][2], reply.1[1][2]), (first, 900, 900));
    }
}

#[test]
fn a_call_with_bad_input_changes_nothing() {
    needs!("functions, Redis 7");
    let (clock, _server, mut connection) = start();
    for line in ["SET {a}:text x", "RPUSH {a}:list x", "ZADD {a}:zset 5 x"] {
        run::<()>(&mut connection, line).unwrap();
    }
    for id in ["held", "dead"] {
        ask(&mut connection, &format!("{RESERVE} {id} 30000 0 500 give_back {QUOTAS}")).unwrap();
    }
    assert_eq!(run::<i64>(&mut connection, "FCALL renew 1 {a}:calls held 90000").unwrap(), 1);
    ask(&mut connection, &format!("{RESERVE} done 90000 0 500 keep {QUOTAS}")).unwrap();
    ask(&mut connection, &format!("{SETTLE} done 500")).unwrap();
    // The lease of "dead" has ended: the next call would give its amount back.
    clock.set(START + 30_000 * MILLISECOND);
    let before = everything(&mut connection);
    let limiters = "{a}:requests {a}:tokens";
    for (line, expected) in [
        (format!("{RESERVE} new 30000 16 500 keep 59 60 60 1 19999 20000 60"), "ERR wrong number of arguments"),
        ("FCALL reserve 0".to_string(), "ERR wrong number of arguments"),
        (format!("{RESERVE} new 0 16 500 keep {QUOTAS}"), "ERR lease must be a whole number from 1 "),
        (format!("{RESERVE} new 30000 -1 500 keep {QUOTAS}"), "ERR places must be a whole number from 0 "),
        (format!("{RESERVE} new 30000 16 -500 keep {QUOTAS}"), "ERR amount must be a whole number from 0 "),
        (format!("{RESERVE} new 30000 16 5e2 keep {QUOTAS}"), "ERR amount must be a whole number from 0 "),
        (format!("{RESERVE} new 30000 16 9999999999999999 keep {QUOTAS}"), "ERR amount must be a whole number"),
        (format!("{RESERVE} new 30000 16 500 lose {QUOTAS}"), "ERR the lease's end must be keep or give_back"),
        (format!("{RESERVE} new 30000 16 500 keep 59 60 60 -1 9 10 60 amount"), "ERR a number that a limiter takes "),
        (format!("{RESERVE} new 30000 16 500 keep 59 0 60 1 9 10 60 amount"), "ERR count must be 1 or more"),
        (format!("{RESERVE} new 30000 1 500 keep 59 0 60 1 9 10 60 amount"), "ERR count must be 1 or more"),
        (format!("{RESERVE} new 30000 16 500 keep 59 60 60 x 9 10 60 amount"), "ERR a number that a limiter takes "),
        (format!("FCALL reserve 3 {{a}}:calls {{a}}:r {{a}}:r new 1 0 5 keep {QUOTAS}"), "ERR a key is there twice"),
        (format!("FCALL reserve 3 {{a}}:c {{a}}:c {{a}}:r new 1 0 5 keep {QUOTAS}"), "ERR a key is there twice"),
        (
            format!("FCALL reserve 3 {{a}}:calls {{a}}:r {{a}}:text new 1 0 5 keep {QUOTAS}"),
            "ERR the key holds no rate",
        ),
        (format!("FCALL reserve 3 {{a}}:calls {{a}}:r {{a}}:list new 1 0 5 keep {QUOTAS}"), "WRONGTYPE "),
        (format!("FCALL reserve 3 {{a}}:list {limiters} new 1 0 5 keep {QUOTAS}"), "WRONGTYPE "),
        (format!("FCALL reserve 3 {{a}}:zset {limiters} new 1 0 5 keep {QUOTAS}"), "ERR the key holds no reservations"),
        (format!("{RESERVE} done 30000 16 500 keep {QUOTAS}"), "ERR id: this call is settled"),
        (format!("{RESERVE} dead 30000 16 500 give_back {QUOTAS}"), "ERR id: the lease of this call has ended"),
        (
            format!("{RESERVE} held 30000 16 501 give_back {QUOTAS}"),
            "ERR id: this call has reserved with other numbers",
        ),
        (format!("{SETTLE} held"), "ERR wrong number of arguments"),
        (format!("{SETTLE} held -1"), "ERR used must be a whole number from 0 "),
        (format!("{SETTLE} held 999999999999999"), "ERR quantity: the tokens would be back only after the year 2262"),
        ("FCALL settle 2 {a}:calls {a}:requests held 5".to_string(), "ERR the keys lack a limiter"),
        ("FCALL renew 1 {a}:calls held 0".to_string(), "ERR lease must be a whole number from 1 "),
        ("FCALL renew 1 {a}:calls held".to_string(), "ERR wrong number of arguments"),
        ("FCALL renew 1 {a}:list held 5".to_string(), "WRONGTYPE "),
    ] {
        let error = error_of(&mut connection, &line);
        assert!(error.starts_with(expected), "{line}: {error}");
        assert_eq!(everything(&mut connection), before, "{line}");
    }
    // The first of two limiters is charged before the second fails.
    let both = "FCALL reserve 3 {a}:calls {a}:fast {a}:slow two 30000 0 5 keep 9 10 60 amount 9 1 86400 amount";
    ask(&mut connection, both).unwrap();
    let before = everything(&mut connection);
    let error = error_of(&mut connection, "FCALL settle 3 {a}:calls {a}:fast {a}:slow two 1000000");
    assert!(error.contains("2262"), "{error}");
    assert_eq!(everything(&mut connection), before);
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
    assert_eq!(run::<i64>(&mut connection, "FCALL renew 1 {a}:calls long 60000").unwrap(), 1);
    assert_eq!(run::<i64>(&mut connection, "FCALL_RO reservations 1 {a}:calls").unwrap(), 1);
    let error = error_of(&mut connection, &format!("{RESERVE} new 30000 0 500 keep {QUOTAS}"));
    assert!(error.starts_with("OOM "), "{error}");
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
}

/// A call that has reserved; its lease, whose end, or that of the receipt, is in ms since the start; the tokens used.
struct Call {
    terms: Terms,
    lease: i64,
    state: State,
    ends: i64,
    used: i64,
}

impl Call {
    /// Returns the tokens that it is charged: those that it has used, or its amount, if that is not given back.
    fn cost(&self) -> i64 {
        match self.state {
            State::Settled => self.used,
            State::Ended if self.terms.gives_back => 0,
            _ => self.terms.amount,
        }
    }
}

const PLACES: i64 = 8;
const LEASES: i64 = 10;
/// max_burst, count, period in seconds: of all, and of each of three users. No token takes a whole number of ns.
const ALL: (i64, i64, i64) = (4_010, 4_011, 60);
const USERS: [(i64, i64, i64); 3] = [(1_012, 2_013, 60), (100_002, 20_011, 60), (49_998, 20_011, 3_600)];

fn quota((max_burst, count, period): (i64, i64, i64)) -> String {
    format!("{max_burst} {count} {period}")
}

/// The rule a second time. Each limiter has a twin, to which the model makes the plain calls that the functions should
/// make: replies and stored states are equal.
#[derive(Default)]
struct Model {
    now: i64,
    calls: BTreeMap<usize, Call>,
    /// The amount that a user's limiter is owed, and the moment after which it is full in any case.
    owed: [(i64, i64); 3],
    /// The tokens that calls are charged whose receipts are gone.
    past: i64,
    /// The calls on the twin of all.
    changes: i64,
    counts: BTreeMap<&'static str, usize>,
}

impl Model {
    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn held(&self) -> impl Iterator<Item = &Call> {
        self.calls.values().filter(|call| call.state == State::Held && call.ends > self.now)
    }

    /// Charges the twin of a limiter, 0 for that of all. Returns its five integers.
    fn charge(&mut self, connection: &mut impl ConnectionLike, user: Option<usize>, quantity: i64) -> Row {
        let (name, numbers) = user.map_or(("all".to_string(), ALL), |user| (format!("user{user}"), USERS[user]));
        self.changes += 1;
        run(connection, &format!("CL.CHARGE {{a}}:twin:{name} {} {quantity}", quota(numbers))).unwrap()
    }

    /// Ends the leases that are over, but for that of `except`, and gives back the amounts to all and to this user.
    /// Returns whether anything was given back.
    fn sweep(&mut self, connection: &mut impl ConnectionLike, user: usize, except: Option<usize>) -> bool {
        let now = self.now;
        let mut back = Vec::new();
        let (owed, until) = std::mem::take(&mut self.owed[user]);
        if owed > 0 && until > now {
            back.push((Some(user), owed));
        }
        let mut ended = Vec::new();
        for (&id, call) in self.calls.iter_mut().filter(|(id, _)| Some(**id) != except) {
            if call.state == State::Held && call.ends <= now {
                call.state = State::Ended;
                ended.push((id, call.terms, call.ends));
                call.ends += LEASES * call.lease;
            }
        }
        for (_, terms, ends) in ended.into_iter().filter(|(_, terms, _)| terms.gives_back && terms.amount > 0) {
            back.push((None, terms.amount));
            let (max_burst, count, period) = USERS[terms.user];
            let full = ends + (max_burst + 1) * period * 1_000 / count;
            if terms.user == user {
                back.push((Some(user), terms.amount));
            } else if full > now {
                let (owed, until) = &mut self.owed[terms.user];
                *owed = if *until > now { *owed } else { 0 } + terms.amount;
                *until = full.max(*until);
                self.count("owed");
            }
        }
        let is_there = |call: &Call| call.state == State::Held || call.ends > now;
        self.past += self.calls.values().filter(|call| !is_there(call)).map(Call::cost).sum::<i64>();
        self.calls.retain(|_, call| is_there(call));
        for &(limiter, amount) in &back {
            self.charge(connection, limiter, -amount);
            self.count("given back");
        }
        !back.is_empty()
    }

    /// Returns the call if its receipt, or its lease, is there.
    fn find(&self, id: usize) -> Option<(State, &Call)> {
        let call = self.calls.get(&id)?;
        let over = call.state == State::Held && call.ends <= self.now;
        let ends = if over { call.ends + LEASES * call.lease } else { call.ends };
        (ends > self.now).then_some((if over { State::Ended } else { call.state }, call))
    }

    fn reserve(
        &mut self,
        connection: &mut impl ConnectionLike,
        id: usize,
        terms: Terms,
    ) -> Result<Reply, &'static str> {
        let known = self.find(id).map(|(state, call)| (state, call.terms.amount));
        match known {
            Some((_, amount)) if amount != terms.amount => return Err("this call has reserved with other numbers"),
            Some((State::Ended, _)) => return Err("the lease of this call has ended"),
            Some((State::Settled, _)) => return Err("this call is settled"),
            _ => {}
        }
        self.sweep(connection, terms.user, None);
        let held = self.held().count() as i64;
        let first = self.held().map(|call| call.ends - self.now).min();
        let twins =
            [("requests", (999, 1_000, 1), 1), ("all", ALL, terms.amount), ("", USERS[terms.user], terms.amount)];
        let twins = twins.map(|(name, numbers, quantity)| {
            let name = if name.is_empty() { format!("user{}", terms.user) } else { name.to_string() };
            format!("{{a}}:twin:{name} {} {}", quota(numbers), if known.is_some() { 0 } else { quantity })
        });
        let mut looks = || twins.each_ref().map(|twin| run::<Row>(connection, &format!("CL.LOOK {twin}")).unwrap());
        if known.is_some() {
            let rows = looks().map(|[_, limit, remaining, _, reset]| [0, limit, remaining, -1, reset]);
            self.count("reserved again");
            return Ok((vec![0, PLACES - held, -1], rows.to_vec()));
        }
        if held >= PLACES {
            let rows = looks().to_vec();
            self.count("no place");
            return Ok((vec![1, 0, first.unwrap()], rows));
        }
        let (integers, rows) = ask(connection, &format!("CL.MTHROTTLE {}", twins.join(" "))).unwrap();
        if integers[0] == 0 {
            self.changes += 1;
            let call = Call { terms, lease: terms.lease, state: State::Held, ends: self.now + terms.lease, used: 0 };
            self.calls.insert(id, call);
        }
        self.count(if integers[0] == 0 { "reserved" } else { "limited" });
        Ok((vec![integers[0], PLACES - held - i64::from(integers[0] == 0), -1], rows))
    }

    fn renew(&mut self, id: usize, lease: i64) -> i64 {
        let held = self.find(id).is_some_and(|(state, _)| state == State::Held);
        if held {
            let call = self.calls.get_mut(&id).unwrap();
            (call.lease, call.ends) = (lease, self.now + lease);
        }
        held.into()
    }

    fn settle(&mut self, connection: &mut impl ConnectionLike, id: usize, user: usize, used: i64) -> Reply {
        let Some((state, call)) = self.find(id) else {
            self.sweep(connection, user, None);
            self.count("no receipt");
            return (vec![0], vec![]);
        };
        let (terms, lease) = (call.terms, call.lease);
        let was_given_back = call.state == State::Ended && terms.gives_back;
        let limiters = [None, Some(terms.user)];
        let difference = if state == State::Settled { 0 } else { used - if was_given_back { 0 } else { terms.amount } };
        let mut rows = limiters.map(|limiter| self.charge(connection, limiter, difference));
        if state != State::Settled {
            let settled = Call { terms, lease, state: State::Settled, ends: self.now + LEASES * lease, used };
            self.calls.insert(id, settled);
        }
        if self.sweep(connection, terms.user, Some(id)) {
            rows = limiters.map(|limiter| self.charge(connection, limiter, 0));
        }
        self.count(match state {
            State::Held => "settled",
            State::Ended => "settled late",
            State::Settled => "settled again",
        });
        (vec![if state == State::Settled { 2 } else { 1 }], rows.to_vec())
    }
}

/// Makes calls at random moments and compares each with the model: new ones, and old ones again, in any order, from
/// callers some of which die. `between` may send a line, lose its answer, kill the server, and return a connection to
/// its successor.
fn live_through<C: ConnectionLike>(
    clocks: &[&Clock],
    mut connection: C,
    steps: usize,
    mut between: impl FnMut(usize, &str) -> Option<C>,
) {
    let mut random = Random::new(2026);
    let mut model = Model::default();
    let mut terms = Vec::<Terms>::new();
    clocks.iter().for_each(|clock| clock.set(START));
    // The limiter of all begins empty, so that it is never full: a full limiter gains no tokens.
    for key in ["all", "twin:all"] {
        run::<Row>(&mut connection, &format!("CL.CHARGE {{a}}:{key} {} {}", quota(ALL), ALL.1)).unwrap();
    }
    for step in 0..steps {
        model.now += random.below(100) as i64 + if random.one_in(60) { 4_000 } else { 0 };
        for clock in clocks {
            clock.set(START + model.now * MILLISECOND);
        }
        let is_new = terms.is_empty() || random.one_in(3);
        if is_new {
            let (user, amount) = (random.below(3), random.below(120) as i64);
            let longest = if random.one_in(4) { 180 } else { 6_000 };
            let lease = 20 + random.below(longest) as i64;
            terms.push(Terms { user, lease, amount, gives_back: random.one_in(2) });
        }
        let id = if is_new { terms.len() - 1 } else { terms.len() - 1 - random.below(terms.len().min(24)) };
        if random.one_in(60) {
            terms[id].amount += 1;
        }
        let Terms { user, lease, amount, gives_back } = terms[id];
        let keys = format!("{{a}}:all {{a}}:user{user}");
        let used = random.below(2 * amount as usize + 1) as i64;
        let action = if is_new { 0 } else { random.below(10) };
        let line = match action {
            0..3 => {
                let ending = if gives_back { "give_back" } else { "keep" };
                let numbers = format!("{} amount {} amount", quota(ALL), quota(USERS[user]));
                let call = format!("call-{id} {lease} {PLACES} {amount} {ending} 999 1000 1 1 {numbers}");
                format!("FCALL reserve 4 {{a}}:calls {{a}}:requests {keys} {call}")
            }
            3..5 => format!("FCALL renew 1 {{a}}:calls call-{id} {lease}"),
            _ => format!("FCALL settle 3 {{a}}:calls {keys} call-{id} {used}"),
        };
        let successor = between(step, &line);
        let lost = successor.is_some();
        connection = successor.unwrap_or(connection);
        let place = format!("step {step} at {}: {line}", model.now);
        match action {
            0..3 => {
                let answer = ask(&mut connection, &line).map_err(|error| error.to_string());
                let expected = model.reserve(&mut connection, id, terms[id]);
                match (answer, expected) {
                    (Ok(answer), Ok(expected)) if lost => assert_eq!(answer.0, expected.0, "{place}"),
                    (Ok(answer), Ok(expected)) => assert_eq!(answer, expected, "{place}"),
                    (Err(answer), Err(expected)) => assert!(answer.contains(expected), "{place}: {answer}"),
                    (answer, expected) => panic!("{place}: {answer:?}, not {expected:?}"),
                }
            }
            3..5 => assert_eq!(run::<i64>(&mut connection, &line).unwrap(), model.renew(id, lease), "{place}"),
            _ => {
                let answer = ask(&mut connection, &line).unwrap();
                let expected = model.settle(&mut connection, id, user, used);
                if lost && expected.0 == [1] {
                    assert!(answer.0 == [1] || answer.0 == [2], "{place}: {answer:?}");
                } else {
                    assert_eq!(answer, expected, "{place}");
                }
            }
        }
        for key in ["requests", "all", "user0", "user1", "user2"] {
            let states: [Option<String>; 2] =
                run(&mut connection, &format!("MGET {{a}}:{key} {{a}}:twin:{key}")).unwrap();
            assert_eq!(states[0], states[1], "{place}: {key}");
        }
        let held: i64 = run(&mut connection, "FCALL_RO reservations 1 {a}:calls").unwrap();
        assert_eq!(held, model.held().count() as i64, "{place}");
        assert!(held <= PLACES, "{place}");
        assert_ne!(run::<i64>(&mut connection, "PTTL {a}:calls").unwrap(), -1, "{place}: the holds stay for ever");
    }
    // All that was charged is what was used, and the amounts that were kept or are held.
    let tat: i64 = run(&mut connection, "GET {a}:all").unwrap();
    let charged = ALL.1 + model.past + model.calls.values().map(Call::cost).sum::<i64>();
    let expected = i128::from(charged) * i128::from(ALL.2) * 1_000_000_000 / i128::from(ALL.1);
    let rounding = i128::from(tat - START) - expected;
    println!("{:?}: {} tokens, to within {rounding} ns by {} calls", model.counts, charged, model.changes);
    assert!(rounding.abs() <= i128::from(model.changes), "{rounding} ns");
    assert!(model.counts.len() == 10 && model.counts.values().all(|&count| count > steps / 200), "{:?}", model.counts);
    for clock in clocks {
        clock.set(START + (model.now + 366 * 86_400_000) * MILLISECOND);
    }
    let keys: Vec<String> = run(&mut connection, "KEYS *").unwrap();
    assert!(keys.is_empty(), "these keys stay: {keys:?}");
}

/// Sends a line, and does not wait for the answer.
fn send(server: &Server, line: &str) {
    server.connect().send_packed_command(&command(line).get_packed_command()).unwrap();
}

#[test]
#[ignore = "slow: thousands of calls"]
fn calls_that_are_repeated_late_and_lost_are_those_of_a_model_through_kills_with_an_aof() {
    needs!("functions, Redis 7");
    let (clock, mut server) = Clock::start_with(START, &["--appendonly", "yes", "--appendfsync", "always"]);
    load(&mut server.connect());
    let connection = server.connect();
    let mut random = Random::new(7);
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
fn calls_that_are_repeated_late_and_lost_are_those_of_a_model_through_failovers() {
    needs!("functions, Redis 7");
    let [(clock, primary), (other_clock, replica)] = [(); 2].map(|()| Clock::start(START));
    load(&mut primary.connect());
    replicate(&replica, &primary);
    let connection = primary.connect();
    let mut pair = [primary, replica];
    live_through(&[&clock, &other_clock], connection, 2_000, |step, line| {
        (step % 500 == 499).then(|| {
            catch_up(&pair[1], &pair[0]);
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

/// Within each move of the slot, the line is sent while the keys are on both nodes.
#[test]
#[ignore = "slow: thousands of calls"]
fn calls_that_are_repeated_late_and_lost_are_those_of_a_model_through_moves_of_their_slot() {
    needs!("functions, Redis 7");
    // The clock jumps further than a node may be silent.
    let settings = ["--cluster-enabled", "yes", "--cluster-node-timeout", "1000000000"];
    let nodes = [(); 2].map(|()| Clock::start_with(START - 3_600_000 * MILLISECOND, &settings));
    let [(clock, first), (other_clock, second)] = &nodes;
    add_slots(&mut first.connect(), SLOTS / 2..SLOTS);
    add_slots(&mut second.connect(), 0..SLOTS / 2);
    run::<()>(&mut first.connect(), &format!("CLUSTER MEET 127.0.0.1 {}", second.port)).unwrap();
    let mut now = START - 3_600_000 * MILLISECOND;
    wait_until("both know the slots", || {
        now += 100 * MILLISECOND;
        nodes.iter().for_each(|(clock, _)| clock.set(now));
        is_ok(first) && is_ok(second)
    });
    nodes.iter().for_each(|(_, node)| load(&mut node.connect()));
    let slot: usize = run(&mut first.connect(), "CLUSTER KEYSLOT {a}").unwrap();
    let id = |node: &Server| -> String { run(&mut node.connect(), "CLUSTER MYID").unwrap() };
    let (mut from, mut to, mut random, mut tries) = (first, second, Random::new(8), [0; 3]);
    live_through(&[clock, other_clock], first.connect(), 2_000, |step, line| {
        (step % 100 == 99).then(|| {
            let [mut source, mut target] = [from, to].map(Server::connect);
            let set = |node: &mut Connection, words: &str| run::<()>(node, &format!("CLUSTER SETSLOT {slot} {words}"));
            set(&mut target, &format!("IMPORTING {}", id(from))).unwrap();
            set(&mut source, &format!("MIGRATING {}", id(to))).unwrap();
            loop {
                let answer = run::<Value>(&mut source, line);
                let code = answer.err().and_then(|error| error.code().map(str::to_string));
                match code.as_deref() {
                    None => tries[0] += 1,
                    Some("ASK") => {
                        run::<()>(&mut target, "ASKING").unwrap();
                        tries[1] += i32::from(run::<Value>(&mut target, line).is_ok());
                    }
                    Some(code) => tries[2] += i32::from(code == "TRYAGAIN"),
                }
                let mut keys: Vec<String> = run(&mut source, &format!("CLUSTER GETKEYSINSLOT {slot} 100")).unwrap();
                if keys.is_empty() {
                    break;
                }
                let key = keys.swap_remove(random.below(keys.len()));
                run::<()>(&mut source, &format!("MIGRATE 127.0.0.1 {} {key} 0 5000", to.port)).unwrap();
            }
            let node = format!("NODE {}", id(to));
            set(&mut target, &node).unwrap();
            set(&mut source, &node).unwrap();
            std::mem::swap(&mut from, &mut to);
            from.connect()
        })
    });
    println!("answered by the source, by the target, and to be tried again: {tries:?}");
    assert!(tries.iter().all(|&tries| tries > 5), "{tries:?}");
    let split = RESERVE.replace("{a}:tokens", "tokens");
    let error = error_of(&mut from.connect(), &format!("{split} new 30000 0 500 keep {QUOTAS}"));
    assert!(error.starts_with("CROSSSLOT "), "{error}");
}

/// The commands that a user must be allowed to call, as the recipe names them.
fn rights() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/recipes/reservation.lua");
    let recipe = fs::read_to_string(path).unwrap().replace("\n-- ", " ");
    let (_, list) = recipe.split_once("A user needs the right to call ").unwrap();
    list.split_once(".\n").unwrap().0.replace(" and ", " ").split(", ").map(str::to_lowercase).collect()
}

#[test]
#[ignore = "slow: a thousand calls"]
fn a_user_needs_the_rights_that_are_named_and_without_one_of_them_nothing_is_half_done() {
    needs!("functions, Redis 7");
    let (clock, server, mut connection) = start();
    let rights = rights();
    let all: Vec<_> = rights.iter().map(|right| format!("+{right}")).collect();
    let both = "FCALL reserve 3 {a}:calls {a}:one {a}:two";
    // Each call finds a lease that has ended, whose amount is to be given back to two limiters.
    let calls = [
        format!("{both} new 30000 1 500 give_back 999 1000 60 amount 999 1000 60 amount"),
        format!("{both} new 30000 2 500 give_back 999 1000 60 amount 999 1000 60 amount"),
        "FCALL settle 3 {a}:calls {a}:one {a}:two held 430".to_string(),
        "FCALL settle 3 {a}:calls {a}:one {a}:two unknown 430".to_string(),
        "FCALL renew 1 {a}:calls held 70000".to_string(),
        "FCALL_RO reservations 1 {a}:calls".to_string(),
    ];
    for missing in [None].into_iter().chain(rights.iter().map(Some)) {
        let mut refused = 0;
        for call in &calls {
            clock.set(START);
            run::<()>(&mut connection, "FLUSHALL").unwrap();
            for (id, lease) in [("dead", 1_000), ("held", 60_000)] {
                let call = format!("{both} {id} {lease} 0 100 give_back 999 1000 60 amount 999 1000 60 amount");
                ask(&mut connection, &call).unwrap();
            }
            clock.set(START + 2_000 * MILLISECOND);
            let before = everything(&mut connection);
            run::<()>(&mut connection, &format!("ACL SETUSER app reset on nopass ~{{a}}:* {}", all.join(" "))).unwrap();
            if let Some(right) = missing {
                run::<()>(&mut connection, &format!("ACL SETUSER app -{right}")).unwrap();
            }
            let mut app = server.connect();
            run::<()>(&mut app, "AUTH app x").unwrap();
            if let Err(error) = run::<Value>(&mut app, call) {
                refused += 1;
                // Redis 7.0 has no code for a function's command.
                let refused = ["NoPerm", "no permissions", "can't run this command"]
                    .iter()
                    .any(|text| error.to_string().contains(text));
                assert!(missing.is_some() && refused, "{call} without {missing:?}: {error}");
                assert_eq!(everything(&mut connection), before, "{call} without {missing:?}");
            }
        }
        assert_eq!(refused > 0, missing.is_some(), "{missing:?} is not needed");
    }
}
