//! Attacks the commands with one key: any arguments, alone, in a script, a transaction or after WATCH, on a key that
//! others fill, change and let expire. The reply, the key, its expiry, the dirty counter and the replicated bytes have
//! to be right.

use redis::Value;

use super::look::{AROUND, Look, Seen, all_between, is_replicated, replicated_bytes, unchanged, wrongly_replicated};
use super::visit::{Place, Role, Text, Visit};
use super::{ALLOWED, Attack, BLURRED, LIMITED, LOOKED, run_visits};
use crate::support::expected::{
    Command, DEBT_TOO_LONG, Found, MILLISECOND, NAMES, NOT_A_STATE, TOO_FAST, TOO_LARGE, WRONG_TYPE, arity,
    below_least, error_text, expected, expiry, in_group, in_units, integers, not_an_integer, same_key,
};
use crate::support::hostile::{Bytes, typed, words};
use crate::support::model::{Change, Told, Way};

const EMPTIED: &str = "allowed, and the key deleted";
const NEVER: &str = "limited for ever";
const IN_DEBT: &str = "in debt";
const PART: &str = "took what there was";

#[test]
fn hostile_calls_get_the_right_answer_and_change_nothing_else() {
    let attack = run_visits(1, Attack::visit, Attack::check);

    let mut expected = vec![
        ALLOWED.to_string(),
        EMPTIED.to_string(),
        LOOKED.to_string(),
        LIMITED.to_string(),
        NEVER.to_string(),
        IN_DEBT.to_string(),
        PART.to_string(),
        arity("cl.throttle"),
        arity("cl.charge"),
        arity("cl.take"),
        arity("cl.mthrottle"),
        in_group(1, WRONG_TYPE.into()),
        in_group(2, same_key(1)),
        WRONG_TYPE.to_string(),
        NOT_A_STATE.to_string(),
        TOO_FAST.to_string(),
        TOO_LARGE.to_string(),
        DEBT_TOO_LONG.to_string(),
    ];
    for name in NAMES {
        expected.push(not_an_integer(name));
        expected.push(below_least(name));
    }
    attack.has_seen(&expected);
}

impl Attack {
    fn visit(&mut self) -> Visit {
        let places = [Place::Plain, Place::Lua, Place::Transaction, Place::Watched];
        let key = self.client.key();
        let mut visit =
            Visit { keys: vec![key.clone()], place: self.client.random.pick(&places), commands: Vec::new() };
        for _ in 0..self.client.random.below(3) {
            let change = self.client.change(&key);
            visit.push(Role::Other, change);
        }
        self.look(&mut visit);
        if visit.place == Place::Watched {
            let watch = vec![b"WATCH".to_vec(), key.clone()];
            visit.push(Role::Other, watch);
        }
        if visit.place == Place::Transaction {
            visit.push(Role::Multi, words(&["MULTI"]));
        }
        let mut call = self.client.call(&key);
        for _ in 0..=self.client.random.below(6) {
            visit.push(Role::Call, call.clone());
            self.look(&mut visit);
            // The same call again finds what the one before has left.
            if self.client.random.one_in(3) {
                call = self.client.call(&key);
            }
        }
        match visit.place {
            Place::Plain | Place::Lua => {}
            Place::Transaction => visit.push(Role::Exec, words(&["EXEC"])),
            Place::Watched => {
                visit.push(Role::Multi, words(&["MULTI"]));
                visit.push(Role::Exec, words(&["EXEC"]));
            }
        }
        self.look(&mut visit);
        visit
    }

    fn check(&mut self, visit: &Visit, seen: &Seen) -> Result<(), String> {
        let Seen { looks, replies, exec } = seen;
        let [.., before_last, last] = looks.as_slice() else {
            return Err("nothing was seen".into());
        };
        let first = &looks[0];
        // A server that knows how many arguments there are to be does not even begin such a transaction.
        if visit.place == Place::Transaction && exec.is_some() {
            let known = visit.calls().any(|call| expected(call, 0, Ok(None)) == Err(arity(&Command::of(call).name)));
            return match known && unchanged(first, last) {
                true => Ok(()),
                false => Err(format!("the transaction failed: {exec:?}\nbefore: {first:?}\nafter: {last:?}")),
            };
        }

        let mut bytes_of_all = 0;
        let expired = |look: &Look| look.expired_by(last.time);
        let mut blurred = last.keys.1 != before_last.keys.0 || looks.iter().any(expired);
        for ((call, reply), looks) in visit.calls().zip(replies).zip(looks.windows(2)) {
            let [before, after] = looks else { continue };
            // In a transaction, the server's clock may stand still.
            let times = match visit.place {
                Place::Transaction => (first.time, last.time),
                _ => (before.time, after.time),
            };
            // The machine's is set right by a few microseconds now and then, also backwards.
            let times = (times.0 - MILLISECOND, times.1 + MILLISECOND);
            let wrong = |what: String| {
                format!("{}\n{what}\nreply: {reply:?}\nbefore: {before:?}\nafter: {after:?}", typed(call))
            };
            let call = Call { in_lua: visit.place == Place::Lua, call, reply, before, after, times };
            let (outcome, change) = call.explain().map_err(wrong)?;
            *self.outcomes.entry(outcome).or_default() += 1;
            self.made += 1;

            let keys = i64::from(after.dump.is_some()) - i64::from(before.dump.is_some());
            let gone = matches!(change, Change::Store(_)) && after.dump.is_none();
            if gone || after.keys.1 - before.keys.0 != keys || before.expired_by(times.1) {
                *self.outcomes.entry(BLURRED.into()).or_default() += 1;
                blurred = true;
                continue;
            }
            let (changes, expected) = (after.dirty - before.dirty, i64::from(change != Change::Nothing));
            if changes != expected {
                return Err(wrong(format!("the server counts {changes} changes for its next save, not {expected}")));
            }
            let bytes = replicated_bytes(&visit.keys[0], change);
            let replicated = after.replicated - before.replicated;
            // Redis 6.2 also puts it around a script that has written nothing.
            let nothing = replicated == AROUND && visit.place == Place::Lua && self.time_left;
            if visit.place != Place::Transaction && !nothing && !is_replicated(replicated, bytes) {
                return Err(wrong(wrongly_replicated(call.call, replicated, bytes)));
            }
            bytes_of_all += bytes;
        }
        let replicated = last.replicated - first.replicated;
        if visit.place == Place::Transaction && !blurred && !is_replicated(replicated, bytes_of_all) {
            return Err(format!(
                "replicas and the AOF were sent {replicated} bytes, but the effects of the transaction have {bytes_of_all}"
            ));
        }
        let touched = *exec == Some(&Value::Nil);
        if visit.place == Place::Watched && !blurred && touched != (bytes_of_all > 0) {
            let told = if touched { "a change, but nothing was written" } else { "no change, but the key was written" };
            return Err(format!("WATCH saw {told}"));
        }
        Ok(())
    }
}

/// A call that was made between two times.
struct Call<'a> {
    in_lua: bool,
    call: &'a [Bytes],
    reply: &'a Value,
    before: &'a Look,
    after: &'a Look,
    times: (i128, i128),
}

impl Call<'_> {
    /// What came of it, and the TAT that it stored; or what is wrong.
    fn explain(&self) -> Result<(String, Change), String> {
        let explained = self.explain_by(self.before.found());
        if explained.is_err() && self.before.expired_by(self.times.1) {
            return self.explain_by(Ok(None));
        }
        explained
    }

    fn explain_by(&self, found: Found) -> Result<(String, Change), String> {
        let expected = |now| expected(self.call, now, found);
        let (mut earliest, mut latest) = self.times;
        if let Value::ServerError(error) = self.reply {
            let mut error = error_text(error);
            // Redis 6.2 names the command as the caller wrote it. A script has words of its own, where the server
            // knows how many arguments there are to be.
            let name = Command::of(self.call).name;
            if error.to_lowercase() == arity(&name).to_lowercase()
                || (self.in_lua && error.starts_with("ERR Wrong number of args calling "))
            {
                error = arity(&name);
            }
            let known = [earliest, latest].iter().any(|&now| expected(now) == Err(error.clone()));
            return match known && unchanged(self.before, self.after) {
                true => Ok((error, Change::Nothing)),
                false => Err(format!("the model expects {:?}", expected(earliest))),
            };
        }
        let command = Command::of(self.call);
        let reply = integers(self.reply).ok_or("not five integers")?;
        // Lua's numbers have 53 bits.
        let shown = |integer: i128| match self.in_lua {
            true => integer as f64 as i128,
            false => integer,
        };

        // Between the two times, a call that is limited may become one that is allowed, and a take may find more.
        let first = expected(earliest)?;
        // A limit may outlast the clock from some moment on, and the call came before that.
        latest = first_moment(earliest, latest + 1, |now| expected(now).is_err()) - 1;
        let last = expected(latest)?;
        if command.way == Way::Take {
            let taken = |now| expected(now).map_or(0, |told| shown(told.taken));
            let end = latest + 1;
            earliest = first_moment(earliest, end, |now| taken(now) >= reply[0]);
            latest = first_moment(earliest, end, |now| taken(now) > reply[0]) - 1;
            if earliest > latest {
                return Err(format!("the model expects {first:?} to {last:?}"));
            }
        } else if let (true, Some(wait), false) = (first.limited, first.retry_after, last.limited) {
            match reply[0] {
                1 => latest = earliest + wait - 1,
                _ => earliest += wait,
            }
        }
        // What was stored tells exactly when the call was made, if the limiter was full, or else that it was not.
        let stored = self.after.value.as_ref();
        let stored = stored.and_then(|value| std::str::from_utf8(&value.0).ok()?.parse::<i128>().ok());
        let tat = found?.unwrap_or(0);
        // What was given back may have filled it or not: the stored text tells.
        if let (Change::Store(new), Change::Delete) = (expected(earliest)?.change, expected(latest)?.change) {
            if stored == Some(new) {
                latest = new - 1;
            } else if expiry(new) * MILLISECOND <= self.times.1 && self.after.dump.is_none() {
                // Deleted by the call, or expired since.
                return Ok((ALLOWED.into(), Change::Store(new)));
            } else {
                earliest = new;
            }
        }
        if let (Some(expected), Some(stored)) = (new_tat(expected(latest)?), stored) {
            let made = stored - (expected - tat.max(latest));
            if (earliest..=latest).contains(&made) {
                latest = made;
                if made > tat {
                    earliest = made;
                }
            }
        }

        let first = expected(earliest)?;
        // A limit may outlast the clock from some moment on, and the call came before that.
        latest = first_moment(earliest, latest + 1, |now| expected(now).is_err()) - 1;
        let last = expected(latest)?;
        let [earliest, latest] = [first, last].map(|told| in_units(told, &command).map(shown));
        all_between(&reply, earliest, latest)?;
        let (Some(first_tat), Some(last_tat)) = (new_tat(first), new_tat(last)) else {
            if first.change == Change::Delete || last.change == Change::Delete {
                return match self.after.dump {
                    None => Ok((EMPTIED.into(), Change::Delete)),
                    Some(_) => Err("all tokens are back, and the key is still there".into()),
                };
            }
            let outcome = match (first.limited, first.retry_after) {
                (false, _) => LOOKED,
                (true, Some(_)) => LIMITED,
                (true, None) => NEVER,
            };
            return match unchanged(self.before, self.after) {
                true => Ok((outcome.into(), Change::Nothing)),
                false => Err(format!("the call was {outcome}, and changed the key")),
            };
        };
        let outcome = match (first.limited, first.retry_after) {
            (true, _) => IN_DEBT,
            (false, Some(_)) => PART,
            (false, None) => ALLOWED,
        };
        match stored {
            Some(tat)
                if (first_tat..=last_tat).contains(&tat)
                    && self.after.value == Some(Text(format!("{tat:019}").into()))
                    && self.after.expires_at(expiry(tat)) =>
            {
                Ok((outcome.into(), Change::Store(tat)))
            }
            // Gone before it could be seen.
            None if self.after.dump.is_none() && expiry(first_tat) * MILLISECOND <= self.times.1 => {
                Ok((outcome.into(), Change::Store(first_tat)))
            }
            _ => Err(format!("the key holds {stored:?}, the model expects a TAT from {first_tat} to {last_tat}")),
        }
    }
}

/// The first moment at which it holds, which then goes on; `end` if there is none before.
fn first_moment(mut begin: i128, mut end: i128, holds: impl Fn(i128) -> bool) -> i128 {
    while begin < end {
        let middle = (begin + end) / 2;
        if holds(middle) {
            end = middle;
        } else {
            begin = middle + 1;
        }
    }
    begin
}

/// The TAT that has to be stored, if one has.
fn new_tat(told: Told) -> Option<i128> {
    match told.change {
        Change::Store(tat) => Some(tat),
        Change::Nothing | Change::Delete => None,
    }
}
