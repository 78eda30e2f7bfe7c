//! Attacks on every command, with any arguments: as plain calls, from scripts, and in transactions. Other commands fill
//! the keys, change them and let them expire. Many calls are made at the exact nanosecond at which the decision
//! changes. The replies, all keys and their expiries, the server's count of changes, and the replicated commands must
//! be right. WATCH must notice only writes.

use std::collections::BTreeSet;

use super::client::{Batch, Hostile, KEYS, Via, Words, typed};
use super::target::{Database, Target, state};
use crate::support::clock;
use crate::support::commands::{Command, MILLISECOND, SECOND};
use crate::support::expected::{ARITY, Expected, NOT_A_STATE, WRONG_TYPE, expected};
use crate::support::random::Random;
use crate::support::setting;

const START: i128 = clock::START as i128;

/// The longest time by which the clock differs from `START`. If the clock stepped back by ten years, Redis 8.10.2 would
/// take seconds to count its clients.
const YEAR: i128 = 365 * 86_400 * SECOND;

#[test]
fn hostile_calls_get_the_right_reply_and_change_nothing_else() {
    let seed = setting("FUZZ_SEED", 1);
    let calls = setting("FUZZ_CALLS", 2_000);
    let mut client = Hostile { random: Random::new(seed), now: clock::START };
    let mut target = Target::start();
    let (mut made, mut ends) = (0, BTreeSet::new());
    while made < calls {
        let batch = client.batch(&target.facts.database);
        let before = target.facts.clone();
        let outcomes = target.run(&batch).unwrap_or_else(|wrong| {
            let (Batch { now, via, commands }, before) = (&batch, before.shown());
            let commands = commands.iter().map(typed).collect::<Vec<_>>().join("\n  ");
            panic!(
                "FUZZ_SEED={seed}, after {made} calls: {wrong}\nThe batch, at {now}, {via:?}:\n  {commands}\n\
                 Before it: {before:#?}"
            )
        });
        made += outcomes.len() as u64;
        ends.extend(outcomes.iter().map(end));
    }
    // Each of these outcomes must happen at least once. Otherwise, the run has not tested that outcome.
    let errors =
        [WRONG_TYPE, NOT_A_STATE, ARITY, "ERR count and period", "ERR max_burst, count", "ERR quantity:", "most 8"];
    let parts = ["is missing", "not an integer", "or more", "the same as", "(group 2)", "(quota 2)"];
    let others = ["allowed: Store", "allowed: Delete", "allowed: Nothing", "limited: Store", "limited: Nothing"];
    for part in errors.into_iter().chain(parts).chain(others) {
        assert!(
            ends.iter().any(|end| end.contains(part)),
            "none of {made} calls ended with {part:?}: set FUZZ_CALLS to more"
        );
    }
}

/// Describes how a call ended.
fn end(outcome: &Result<Expected, String>) -> String {
    match outcome {
        Err(error) => error.clone(),
        Ok(Expected { limited, decisions, .. }) => {
            format!("{}: {:?}", if *limited { "limited" } else { "allowed" }, decisions[0].1.change)
        }
    }
}

impl Hostile {
    fn batch(&mut self, database: &Database) -> Batch {
        let key = self.random.pick(&KEYS);
        if self.random.one_in(3) {
            let commands = (0..=self.random.below(2)).map(|_| self.change(key)).collect();
            return Batch { now: self.now, via: Via::Other, commands };
        }
        let mut commands = vec![self.call(key)];
        for _ in 0..self.random.below(6) {
            // Often repeat the last call, so that it meets the state that it has just left.
            let again = commands[commands.len() - 1].clone();
            commands.push(if self.random.one_in(3) { self.call(key) } else { again });
        }
        self.now = self.moment(&commands[0], database);
        let via = self.random.pick(&[Via::Plain, Via::Lua, Via::Transaction]);
        // Some servers refuse a whole transaction if one of its calls has the wrong number of arguments.
        let is_arity =
            |call: &Words| expected(call, self.now.into(), |_| Ok(vec![])).is_err_and(|error| error == ARITY);
        let via = if commands.iter().any(is_arity) { Via::Plain } else { via };
        Batch { now: self.now, via, commands }
    }

    /// Returns a moment for the call: usually one at which the call's outcome changes, or a nanosecond before or after
    /// that moment. Sometimes the moment is up to 19 seconds or milliseconds earlier, or random.
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

/// Returns moments at which the call's outcome may change: a key expires, a limiter becomes full, this call is only
/// just allowed, or the tokens it takes from a full limiter come back at the last moment that a key can hold.
fn edges(call: &Words, database: &Database) -> Vec<i128> {
    let mut edges = Vec::new();
    // For a call at moment 0, the time to wait is also the moment at which the wait ends.
    let outcome = expected(call, 0, |key| state(database, key));
    for (key, decision) in outcome.iter().flat_map(|outcome| &outcome.decisions) {
        let (tats, verdict) = (state(database, key).unwrap_or_default(), decision.verdict);
        edges.push(match tats.is_empty() {
            true => i128::from(i64::MAX) - verdict.reset_after,
            false => verdict.retry_after.unwrap_or(verdict.reset_after),
        });
        edges.extend(tats);
        let expires_at = database.get(key).and_then(|entry| entry.expires_at);
        edges.extend(expires_at.map(|expires_at| i128::from(expires_at + 1) * MILLISECOND));
    }
    edges.retain(|edge| (edge - START).abs() <= YEAR);
    edges
}
