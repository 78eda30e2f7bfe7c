//! The rule of docs/budgets/reservation.lua a second time, and calls at random that are compared with it.

use std::collections::BTreeMap;

use redis::{Connection, ConnectionLike, RedisResult, Value};

use super::clock::{Clock, MILLISECOND};
use super::random::Random;
use super::recipes::{Row, START, load_function, read};
use super::{Server, run};

pub const RESERVE: &str = "FCALL reserve 3 {a}:calls {a}:requests {a}:tokens";
pub const QUOTAS: &str = "59 60 60 1 19999 20000 60 amount";

pub fn load(server: &Server) -> Connection {
    let mut connection = server.connect();
    load_function(&mut connection, &read("../budgets/reservation.lua")).unwrap();
    connection
}

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

impl Terms {
    fn takes(&self, limiter: usize) -> bool {
        limiter == 0 || limiter == self.user
    }
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
    /// Returns the tokens that it is charged: those that it has used, or its amount, if that is not to be given back.
    fn cost(&self) -> i64 {
        match self.state {
            State::Unknown => 0,
            State::Settled => self.used,
            State::Ended if self.terms.gives_back => 0,
            _ => self.terms.amount,
        }
    }
}

const PLACES: i64 = 4;
const LEASES: i64 = 10;
/// The limiters of all and of each of three users: name, max_burst, tokens that come back in a period, and this in
/// seconds. A token takes no whole number of nanoseconds.
const LIMITERS: [(&str, i64, i64, i64); 4] = [
    ("all", 4_010, 4_011, 60),
    ("user1", 2_013, 2_014, 2),
    ("user2", 100_054, 20_011, 60),
    ("user3", 40_021, 20_011, 3_600),
];
/// The limiter that is full now and then: tokens that are given back to it are lost.
const FULL: usize = 2;

fn numbers(limiter: usize) -> String {
    let (_, max_burst, count, period) = LIMITERS[limiter];
    format!("{max_burst} {count} {period}")
}

/// Returns the milliseconds in which all tokens of a limiter come back.
fn full(limiter: usize) -> i64 {
    let (_, max_burst, count, period) = LIMITERS[limiter];
    (max_burst + 1) * period * 1_000 / count
}

/// The rule a second time. Each limiter has a twin, to which the model makes the plain calls that the functions should
/// make: replies and stored states are equal.
struct Model<C> {
    connection: C,
    now: i64,
    calls: BTreeMap<usize, Call>,
    /// The amounts of leases that have ended, to be given back from the next call on, and the end of each.
    ended: Vec<(Terms, i64)>,
    /// The amount that each limiter is owed, and the moment after which it keeps it.
    owed: [(i64, i64); 4],
    /// The tokens that each limiter keeps of calls whose receipts are gone, of amounts, and of other users of it.
    past: [i64; 4],
    /// The calls on each twin, and the moment that it stores.
    changes: [i64; 4],
    tats: [i64; 4],
    counts: BTreeMap<&'static str, usize>,
}

impl<C: ConnectionLike> Model<C> {
    /// Moves to this moment. Before it, others use as much of the limiters as comes back until then, so that these are
    /// never full, except one.
    fn at(&mut self, now: i64) {
        for limiter in (0..4).filter(|limiter| *limiter != FULL) {
            let (name, _, count, period) = LIMITERS[limiter];
            let level = (self.tats[limiter] - START) / MILLISECOND - now;
            if level < full(limiter) / 2 {
                let used = (full(limiter) * 3 / 4 - level) * count / period / 1_000;
                run::<Row>(&mut self.connection, &format!("CL.CHARGE {{a}}:{name} {} {used}", numbers(limiter)))
                    .unwrap();
                self.charge(limiter, used);
                self.past[limiter] += used;
            }
        }
        self.now = now;
        for call in self.calls.values_mut().filter(|call| call.state == State::Held && call.ends <= now) {
            if call.terms.gives_back && call.terms.amount > 0 {
                self.ended.push((call.terms, call.ends));
            }
            (call.state, call.ends) = (State::Ended, call.ends + LEASES * call.terms.lease);
        }
        for call in self.calls.values().filter(|call| call.ends <= now) {
            for limiter in [0, call.terms.user] {
                self.past[limiter] += call.cost();
            }
        }
        self.calls.retain(|_, call| call.ends > now);
    }

    fn held(&self) -> impl Iterator<Item = &Call> {
        self.calls.values().filter(|call| call.state == State::Held)
    }

    /// Charges the twin of a limiter. Returns its five integers.
    fn charge(&mut self, limiter: usize, quantity: i64) -> Row {
        self.changes[limiter] += 1;
        let call = format!("CL.CHARGE {{a}}:twin:{} {} {quantity}", LIMITERS[limiter].0, numbers(limiter));
        run(&mut self.connection, &call).unwrap()
    }

    /// Gives back to these limiters what they are owed. Returns whether there was anything.
    fn give_back(&mut self, limiters: &[usize]) -> bool {
        let now = self.now;
        let mut count = |name| *self.counts.entry(name).or_default() += 1;
        for (owed, past) in
            self.owed.iter_mut().zip(&mut self.past).filter(|((amount, until), _)| *amount > 0 && *until <= now)
        {
            count("kept");
            *past += std::mem::take(owed).0;
        }
        for (Terms { user, lease, amount, .. }, ends) in std::mem::take(&mut self.ended) {
            for limiter in [0, user] {
                // Until then, a settlement may come, or the limiter may lack tokens that were taken before.
                let until = (ends + LEASES * lease).max(ends + full(limiter));
                if until <= now {
                    count("kept");
                    self.past[limiter] += amount;
                } else {
                    count(if limiters.contains(&limiter) { "given back" } else { "owed" });
                    let owed = &mut self.owed[limiter];
                    *owed = (owed.0 + amount, owed.1.max(until));
                }
            }
        }
        let mut any = false;
        for &limiter in limiters {
            let (owed, _) = std::mem::take(&mut self.owed[limiter]);
            any |= owed > 0;
            self.charge(limiter, -owed);
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
        self.give_back(&[0, terms.user]);
        let held = self.held().count() as i64;
        let quantity = if known.is_some() { 0 } else { terms.amount };
        let [all, user] = [0, terms.user]
            .map(|limiter| format!("{{a}}:twin:{} {} {quantity}", LIMITERS[limiter].0, numbers(limiter)));
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
        for limiter in [0, terms.user] {
            self.changes[limiter] += 1;
        }
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
                self.give_back(&[0, user]);
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
        if self.give_back(&[0, user]) {
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
    let (calls, ended, owed, past, changes, counts) = Default::default();
    let mut model = Model { connection, now: 0, calls, ended, owed, past, changes, tats: [START; 4], counts };
    let (mut random, mut terms) = (Random::new(2026), Vec::<Terms>::new());
    for step in 0..steps {
        let quiet = if random.one_in(400) { 100_000 } else { random.below(14_000) } as i64;
        model.at(model.now + random.below(100) as i64 + if random.one_in(20) { quiet } else { 0 });
        set(model.now);
        let is_new = terms.is_empty() || random.one_in(3);
        if is_new {
            let (longest, amount) = (if random.one_in(2) { 180 } else { 9_000 }, random.below(200) as i64);
            let (user, lease) = (1 + random.below(3), 20 + random.below(longest) as i64);
            terms.push(Terms { user, lease, amount, gives_back: random.one_in(2) });
        }
        let id = terms.len() - 1 - if is_new { 0 } else { random.below(terms.len().min(16)) };
        terms[id].amount += i64::from(random.one_in(60));
        let Terms { user, lease, amount, gives_back } = terms[id];
        let (name, ..) = LIMITERS[user];
        let used = random.below(2 * amount as usize + 1) as i64;
        let action = if is_new { 0 } else { random.below(11) };
        let line = match action {
            0..3 => {
                let ending = if gives_back { "give_back" } else { "keep" };
                let call = format!("call-{id} {lease} {PLACES} {amount} {ending}");
                let numbers = format!("999 1000 1 1 {} amount {} amount", numbers(0), numbers(user));
                format!("FCALL reserve 4 {{a}}:calls {{a}}:requests {{a}}:all {{a}}:{name} {call} {numbers}")
            }
            3..5 => format!("FCALL renew 1 {{a}}:calls call-{id} {lease}"),
            5 => "FCALL settle 1 {a}:calls other 0".to_string(),
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
            let expected = match action {
                0..3 => model.reserve(id, terms[id]),
                5 => {
                    model.give_back(&[]);
                    Ok(("no limiter", (vec![0], vec![])))
                }
                _ => Ok(model.settle(id, terms[id], used)),
            };
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
        let keys =
            |of: &str| format!("{{a}}:{of}all {{a}}:{of}user1 {{a}}:{of}user2 {{a}}:{of}user3 {{a}}:{of}requests");
        let both = format!("MGET {} {}", keys(""), keys("twin:"));
        let states = run::<[Option<i64>; 10]>(&mut model.connection, &both).unwrap();
        let (states, twins) = states.split_at(5);
        assert_eq!(states, twins, "{place}");
        model.tats.iter_mut().zip(states).for_each(|(tat, state)| *tat = state.unwrap_or(START));
        let held = integer(&mut model.connection, "FCALL_RO reservations 1 {a}:calls");
        assert!(held <= PLACES && held == model.held().count() as i64, "{place}: {held} places");
        assert_ne!(integer(&mut model.connection, "PTTL {a}:calls"), -1, "{place}: the holds stay for ever");
    }
    println!("{:?}", model.counts);
    // All that was charged is what was used, and the amounts that were kept or are not yet given back.
    for limiter in (0..4).filter(|limiter| *limiter != FULL) {
        let due = model.ended.iter().filter(|(terms, _)| terms.takes(limiter)).map(|(terms, _)| terms.amount);
        let calls = model.calls.values().filter(|call| call.terms.takes(limiter)).map(Call::cost);
        let charged = model.past[limiter] + model.owed[limiter].0 + due.sum::<i64>() + calls.sum::<i64>();
        let (name, _, count, period) = LIMITERS[limiter];
        let expected = i128::from(charged) * i128::from(period) * 1_000_000_000 / i128::from(count);
        let rounding = i128::from(model.tats[limiter] - START) - expected;
        println!("{name}: {charged} tokens, to within {rounding} ns by {} calls", model.changes[limiter]);
        assert!(rounding.abs() <= i128::from(model.changes[limiter]), "{name}: {rounding} ns");
    }
    // A short life may miss one of the twelve cases.
    let met = model.counts.len() == 12 && model.counts.values().all(|&count| count > steps / 200);
    assert!(met || steps < 1_000, "{:?}", model.counts);
    set(model.now + 366 * 86_400_000);
    let keys: Vec<String> = run(&mut model.connection, "KEYS *").unwrap();
    assert!(keys.is_empty(), "these keys stay: {keys:?}");
}
