//! Attacks on every command: with any arguments, alone, in a script, in a transaction or after WATCH, on keys that
//! other clients fill, change and let expire, at the nanoseconds at which the decision changes. The replies, all keys,
//! their expiries, the dirty counter and the replicated commands must be right.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::attacked::{Attacked, Database, found, shown};
use super::client::{Bytes, Hostile, Words};
use super::visit::{Place, Visit, keys};
use crate::support::clock::START;
use crate::support::commands::{Command, MILLISECOND, SECOND};
use crate::support::expected::{
    Answer, DEBT_TOO_LONG, NAMES, NOT_A_STATE, TOO_FAST, TOO_LARGE, TOO_MANY_QUOTAS, WRONG_TYPE, answer, arity,
    below_least, in_group, in_quota, not_an_integer, same_key,
};
use crate::support::model::Change;
use crate::support::random::Random;
use crate::support::setting;

const ALLOWED: &str = "allowed and stored";
const EMPTIED: &str = "allowed, and the key deleted";
const LOOKED: &str = "allowed, nothing to store";
const LIMITED: &str = "limited for now";
const NEVER: &str = "limited for ever";
const IN_DEBT: &str = "in debt";
const PART: &str = "took what there was";
/// A second mark of a visit, beside its outcome: a nanosecond earlier or later, its first call would have had another
/// outcome.
const ON_AN_EDGE: &str = "(on an edge)";
/// Another such mark: a quota other than the first decided.
const BY_ANOTHER_QUOTA: &str = "(by another quota)";

const HOUR: i64 = 3_600 * SECOND as i64;

/// The range of the clock. Redis 8.10.2 needs seconds to count its clients when the clock steps back by ten years.
const RANGE: RangeInclusive<i128> = START as i128 - YEAR..=START as i128 + YEAR;
const YEAR: i128 = 365 * 24 * HOUR as i128;

#[test]
fn hostile_calls_get_the_right_answer_and_change_nothing_else() {
    let seed = setting("FUZZ_SEED", 1);
    let calls = setting("FUZZ_CALLS", 2_000);
    let mut client = Hostile { random: Random::new(seed), now: START };
    let mut attacked = Attacked::start();
    let (mut made, mut outcomes) = (0, BTreeMap::<String, u64>::new());
    while made < calls {
        let visit = client.visit(&attacked.seen.database);
        let before = attacked.seen.database.clone();
        let is_on_an_edge = is_on_an_edge(&visit, &before);
        match attacked.visit(&visit) {
            Ok(answered) => {
                made += answered.len() as u64;
                let edge = is_on_an_edge.then(|| ON_AN_EDGE.to_string());
                let another = answered.iter().flatten().filter(|answer| answer.quota > 1);
                let another = another.map(|_| BY_ANOTHER_QUOTA.to_string());
                for outcome in answered.iter().map(outcome).chain(edge).chain(another) {
                    *outcomes.entry(outcome).or_default() += 1;
                }
            }
            Err(wrong) => {
                let before = shown(&before);
                panic!("FUZZ_SEED={seed}, after {made} calls: {wrong}\nThe visit:\n{visit}The keys before it: {before}")
            }
        }
    }
    println!("seed {seed}, {made} calls: {outcomes:#?}");

    // Each outcome must occur often enough for the run to show something about it.
    let mut seldom = vec![in_group(2, NOT_A_STATE.into()), in_quota(2, TOO_FAST.into()), TOO_MANY_QUOTAS.into()];
    seldom.extend([WRONG_TYPE, NOT_A_STATE].map(|error| in_group(1, error.into())));
    seldom.extend([2, 3].map(|group| in_group(group, same_key(1))));
    seldom.extend(["cl.throttle", "cl.charge", "cl.take", "cl.mthrottle"].map(arity));
    seldom.extend(NAMES.iter().flat_map(|name| [not_an_integer(name), below_least(name)]));
    seldom.extend(NAMES.iter().map(|name| in_group(2, format!("ERR {name} is missing"))));
    seldom.extend([EMPTIED, IN_DEBT, PART, TOO_FAST, DEBT_TOO_LONG].map(String::from));
    let often = [ON_AN_EDGE, BY_ANOTHER_QUOTA, ALLOWED, LOOKED, LIMITED, NEVER, WRONG_TYPE, NOT_A_STATE, TOO_LARGE];
    for (expected, least) in [(seldom, made / 4000), (often.map(String::from).into(), made / 100)] {
        for outcome in expected {
            let times = outcomes.get(&outcome).copied().unwrap_or(0);
            assert!(times >= least, "{outcome}: only {times} times");
        }
    }
}

impl Hostile {
    fn visit(&mut self, database: &Database) -> Visit {
        // Three in four visits are to a key that exists.
        let there: Vec<&Bytes> = database.keys().collect();
        let key = if there.is_empty() || self.random.one_in(4) { self.key() } else { self.random.pick(&there).clone() };
        // Delete one value in four that is no state: calls on it would only be refused.
        if found(database, self.now, &key).is_err() && self.random.one_in(4) {
            return Visit { now: self.now, place: Place::Other, commands: vec![vec!["DEL".into(), key]] };
        }
        if self.random.one_in(3) {
            let commands = (0..=self.random.below(2)).map(|_| self.change(&key)).collect();
            return Visit { now: self.now, place: Place::Other, commands };
        }
        let place = self.random.pick(&[Place::Plain, Place::Lua, Place::Transaction, Place::Watched]);
        let mut commands = vec![self.call(&key)];
        for _ in 0..self.random.below(6) {
            // Repeat the call: it then meets the state that the first one has left.
            let again = commands[commands.len() - 1].clone();
            commands.push(if self.random.one_in(3) { self.call(&key) } else { again });
        }
        self.now = self.moment(&commands[0], database);
        Visit { now: self.now, place, commands }
    }

    /// Returns a moment at which this call's outcome changes, or one that is a nanosecond or some of the call's units
    /// away from such a moment, or any other.
    fn moment(&mut self, call: &Words, database: &Database) -> i64 {
        let edges = self.edges(call, database);
        let moment = match self.random.below(10) {
            0 => i128::from(START + self.random.of_any_length() % HOUR),
            1 => i128::from(self.now) + i128::from(self.random.of_any_length() % HOUR),
            2 => i128::from(self.now) - i128::from(self.random.of_any_length() % HOUR),
            _ if edges.is_empty() => self.now.into(),
            3 => self.random.pick(&edges) - Command::of(call).unit * self.random.below(20) as i128,
            _ => self.random.pick(&edges),
        };
        let moment = moment + self.random.pick(&[-1, 0, 1]);
        moment.clamp(*RANGE.start(), *RANGE.end()) as i64
    }

    /// Returns the moments at which the call's outcome changes: a key expires, a limiter is full, this call or one of
    /// another quantity is just allowed, or the limit just fits into the range of moments.
    fn edges(&mut self, call: &Words, database: &Database) -> Vec<i128> {
        let mut edges = Vec::new();
        for key in keys(call) {
            edges.extend(found(database, 0, key).unwrap_or_default());
            let expires_at = database.get(key).map_or(-1, |held| i128::from(held.expires_at));
            if expires_at >= 0 {
                edges.extend([expires_at * MILLISECOND, (expires_at + 1) * MILLISECOND]);
            }
        }
        let mut calls = vec![call.clone()];
        if let [key, max_burst, count, period, ..] = call[1..].chunks(5).next().unwrap_or_default() {
            let limit = str::from_utf8(max_burst)
                .ok()
                .and_then(|text| text.parse::<i64>().ok())
                .map_or(1, |most| most.max(0) as u64 + 1);
            let quantity = if self.random.one_in(4) { limit } else { self.random.bits() % limit + 1 };
            let name = if Command::of(call).unit == MILLISECOND { "CL.PCHARGE" } else { "CL.CHARGE" };
            let [name, quantity] = [name.into(), quantity.to_string()].map(String::into_bytes);
            calls.push([&name, key, max_burst, count, period, &quantity].map(Clone::clone).into());
        }
        for call in calls {
            // Decide the call at moment 0: the wait in its reply is then the moment at which the wait ends.
            let Ok(Answer { told, .. }) = answer(&call, 0, |key| found(database, 0, key)) else { continue };
            for (told, key) in told.iter().zip(keys(&call)) {
                match found(database, 0, key) {
                    Ok(tats) if !tats.is_empty() => edges.push(told.retry_after.unwrap_or(told.reset_after)),
                    _ => edges.push(i128::from(i64::MAX) - told.reset_after),
                }
            }
        }
        edges.retain(|edge| RANGE.contains(edge));
        edges
    }
}

fn outcome(answer: &Result<Answer, String>) -> String {
    let Answer { told, changes, .. } = match answer {
        Ok(answer) => answer,
        Err(error) => return error.clone(),
    };
    let limited = told.iter().find(|told| told.limited);
    let waits = told.iter().any(|told| told.retry_after.is_some());
    let changed = |of: fn(&Change<Vec<i128>>) -> bool| changes.iter().any(|(_, change)| of(change));
    let stores = changed(|change| matches!(change, Change::Store(_)));
    match limited {
        Some(_) if stores => IN_DEBT,
        Some(told) if told.retry_after.is_none() => NEVER,
        Some(_) => LIMITED,
        None if stores && waits => PART,
        None if stores => ALLOWED,
        None if changed(|change| *change == Change::Delete) => EMPTIED,
        None => LOOKED,
    }
    .into()
}

/// Returns whether the first call would get another reply, or find its keys in another state, a nanosecond earlier or
/// later.
fn is_on_an_edge(visit: &Visit, database: &Database) -> bool {
    if visit.place == Place::Other {
        return false;
    }
    let call = &visit.commands[0];
    let at = |now: i64| {
        let answer = answer(call, now.into(), |key| found(database, now, key));
        (answer.map(|answer| answer.reply), keys(call).map(|key| found(database, now, key)).collect::<Vec<_>>())
    };
    [visit.now - 1, visit.now + 1].iter().any(|&now| at(now) != at(visit.now))
}
