//! The rule of docs/recipes/reservation.lua a second time, and calls at random that are compared with it.

use std::collections::BTreeMap;

use redis::{Connection, ConnectionLike, RedisResult, Value};

use super::clock::Clock;
use super::random::Random;
use super::recipes::{MILLISECOND, START, load_function, read};
use super::{Server, run};

pub const RESERVE: &str = "FCALL reserve 3 {a}:calls {a}:requests {a}:tokens";
pub const QUOTAS: &str = "59 60 60 1 19999 20000 60 amount";

pub fn load(server: &Server) -> Connection {
    let mut connection = server.connect();
    load_function(&mut connection, &read("reservation.lua")).unwrap();
    connection
}

pub type Row = [i64; 5];

/// A reply: its integers, and the five integers of each limiter.
pub type Reply = (Vec<i64>, Vec<Row>);

pub fn ask(connection: &mut impl ConnectionLike, line: &str) -> RedisResult<Reply> {
    let reply: Vec<Value> = run(connection, line)?;
    let (rows, integers): (Vec<_>, _) = reply.into_iter().partition(|value| matches!(value, Value::Array(_)));
    let integers = integers.into_iter().map(redis::from_redis_value).collect::<Result<_, _>>()?;
    Ok((integers, rows.into_iter().map(redis::from_redis_value).collect::<Result<_, _>>()?))
}

pub fn integer(connection: &mut impl ConnectionLike, line: &str) -> i64 {
    run(connection, line).unwrap_or_else(|error| panic!("{line}: {error}"))
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
pub fn live_through<C: ConnectionLike>(
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
    // A short life may miss one of the ten cases.
    let met = model.counts.len() == 10 && model.counts.values().all(|&count| count > steps / 200);
    assert!(met || steps < 1_000, "{:?}", model.counts);
    set(model.now + 366 * 86_400_000);
    let keys: Vec<String> = run(&mut model.connection, "KEYS *").unwrap();
    assert!(keys.is_empty(), "these keys stay: {keys:?}");
}
