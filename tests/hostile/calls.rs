//! Attacks on every command: with any arguments, as plain calls, from a script and in a transaction, on keys that other
//! commands fill, change and let expire, often at the nanosecond at which the decision changes. The replies, all keys,
//! their expiries, the dirty counter and the replicated commands must be right, and WATCH must see the writes alone.

use std::collections::BTreeSet;

use super::attacked::{Attacked, Database, found};
use super::client::{Bytes, Hostile, KEYS, Words, typed};
use super::visit::{Place, Visit};
use crate::support::clock;
use crate::support::commands::{Command, MILLISECOND, SECOND};
use crate::support::expected::{ARITY, Answer, NOT_A_STATE, WRONG_TYPE, answer};
use crate::support::random::Random;
use crate::support::setting;

const START: i128 = clock::START as i128;

/// The furthest that the clock is from `START`. Redis 8.10.2 needs seconds to count its clients when the clock steps
/// back by ten years.
const YEAR: i128 = 365 * 86_400 * SECOND;

#[test]
fn hostile_calls_get_the_right_answer_and_change_nothing_else() {
    let seed = setting("FUZZ_SEED", 1);
    let calls = setting("FUZZ_CALLS", 2_000);
    let mut client = Hostile { random: Random::new(seed), now: clock::START };
    let mut attacked = Attacked::start();
    let (mut made, mut ends) = (0, BTreeSet::new());
    while made < calls {
        let visit = client.visit(&attacked.seen.database);
        let before = attacked.seen.clone();
        let answers = attacked.visit(&visit).unwrap_or_else(|wrong| {
            let (Visit { now, place, commands }, before) = (&visit, before.facts());
            let commands = commands.iter().map(typed).collect::<Vec<_>>().join("\n  ");
            panic!(
                "FUZZ_SEED={seed}, after {made} calls: {wrong}\nThe visit, at {now}, {place:?}:\n  {commands}\n\
                 Before it: {before:#?}"
            )
        });
        made += answers.len() as u64;
        ends.extend(answers.iter().map(end));
    }
    // A run without one of these shows nothing about it.
    let errors =
        [WRONG_TYPE, NOT_A_STATE, ARITY, "ERR count and period", "ERR max_burst, count", "ERR quantity:", "most 8"];
    let parts = ["is missing", "not an integer", "or more", "the same as", "(group 2)", "(quota 2)"];
    let others = ["allowed: Store", "allowed: Delete", "allowed: Nothing", "limited: Store", "limited: Nothing"];
    for part in errors.into_iter().chain(parts).chain(others) {
        assert!(ends.iter().any(|end| end.contains(part)), "no call ended so: {part}");
    }
}

/// Describes how a call ended.
fn end(answer: &Result<Answer, String>) -> String {
    match answer {
        Err(error) => error.clone(),
        Ok(Answer { told, changes, .. }) => {
            let limited = if told.iter().any(|told| told.limited) { "limited" } else { "allowed" };
            format!("{limited}: {:?}", changes[0].1)
        }
    }
}

impl Hostile {
    fn visit(&mut self, database: &Database) -> Visit {
        let key = self.random.pick(&KEYS);
        if self.random.one_in(3) {
            let commands = (0..=self.random.below(2)).map(|_| self.change(key)).collect();
            return Visit { now: self.now, place: Place::Other, commands };
        }
        let mut commands = vec![self.call(key)];
        for _ in 0..self.random.below(6) {
            // Repeat the call: it then meets the state that the first one has left.
            let again = commands[commands.len() - 1].clone();
            commands.push(if self.random.one_in(3) { self.call(key) } else { again });
        }
        self.now = self.moment(&commands[0], database);
        let place = self.random.pick(&[Place::Plain, Place::Lua, Place::Transaction]);
        // Some servers refuse a whole transaction for a call with a wrong number of arguments.
        let is_arity = |call: &Words| answer(call, self.now.into(), |_| Ok(vec![])).is_err_and(|error| error == ARITY);
        let place = if commands.iter().any(is_arity) { Place::Plain } else { place };
        Visit { now: self.now, place, commands }
    }

    /// Returns a moment at which this call's outcome changes, or one that is a nanosecond or some of the call's units
    /// away from such a moment, or any other.
    fn moment(&mut self, call: &Words, database: &Database) -> i64 {
        let edges = edges(call, database);
        let moment = match self.random.below(8) {
            0 => START + i128::from(self.random.of_any_length()) % YEAR,
            _ if edges.is_empty() => self.now.into(),
            1 => self.random.pick(&edges) - Command::of(call).unit * self.random.below(20) as i128,
            _ => self.random.pick(&edges),
        };
        (moment + self.random.pick(&[-1, 0, 1])).clamp(START - YEAR, START + YEAR) as i64
    }
}

/// Returns moments at which the call's outcome may change: a key expires, a limiter is full, this call is just allowed,
/// or the tokens of a full limiter's call come back at the last moment that fits.
fn edges(call: &Words, database: &Database) -> Vec<i128> {
    let mut edges = Vec::new();
    for key in keys(call) {
        edges.extend(found(database, key).unwrap_or_default());
        let expires_at = database.get(key).and_then(|held| held.expires_at);
        edges.extend(expires_at.map(|expires_at| i128::from(expires_at + 1) * MILLISECOND));
    }
    // Decide the call at moment 0: the wait in its reply is then the moment at which the wait ends.
    let answer = answer(call, 0, |key| found(database, key));
    for (told, key) in answer.iter().flat_map(|answer| &answer.told).zip(keys(call)) {
        match found(database, key) {
            Ok(tats) if !tats.is_empty() => edges.push(told.retry_after.unwrap_or(told.reset_after)),
            _ => edges.push(i128::from(i64::MAX) - told.reset_after),
        }
    }
    edges.retain(|edge| (edge - START).abs() <= YEAR);
    edges
}

/// Returns the keys that a call names.
fn keys(call: &[Bytes]) -> impl Iterator<Item = &Bytes> {
    let several = Command::of(call).takes_several_keys();
    call[1..].iter().step_by(if several { 5 } else { call.len() })
}
