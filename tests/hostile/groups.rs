//! Attacks CL.MTHROTTLE with several keys, any of which may hold something else: all of its groups have to take, or
//! none.

use redis::Value;

use super::look::{Seen, all_between, is_replicated, replicated_bytes, unchanged, wrongly_replicated};
use super::visit::{Place, Role, Text, Visit};
use super::{ALLOWED, Attack, BLURRED, LIMITED, LOOKED, run_visits};
use crate::support::expected::{
    Command, MILLISECOND, NOT_A_STATE, WRONG_TYPE, error_text, expected_of_groups, expiry, in_group, in_units,
    limited_and_groups, same_key,
};
use crate::support::hostile::{typed, words};
use crate::support::model::{Change, Way};

#[test]
fn hostile_groups_are_all_or_nothing() {
    let attack = run_visits(10, Attack::visit_of_several, Attack::check_several);

    attack.has_seen(&[
        ALLOWED.to_string(),
        LOOKED.to_string(),
        LIMITED.to_string(),
        in_group(1, WRONG_TYPE.into()),
        in_group(2, WRONG_TYPE.into()),
        in_group(1, NOT_A_STATE.into()),
        in_group(2, NOT_A_STATE.into()),
        in_group(2, same_key(1)),
        in_group(3, same_key(1)),
    ]);
}

impl Attack {
    fn visit_of_several(&mut self) -> Visit {
        let mut visit = Visit { keys: Vec::new(), place: Place::Plain, commands: Vec::new() };
        let mut call = words(&[self.client.random.pick(&["CL.MTHROTTLE", "CL.MPTHROTTLE"])]);
        // One group is enough for an error, and then the others show nothing.
        let hostile = self.client.random.one_in(3);
        for _ in 0..2 + self.client.random.below(3) {
            let key = self.client.key();
            // Nonsense is refused, too, so mostly it is as another visit has left it, or empty.
            if self.client.random.one_in(6) {
                let change = self.client.change(&key);
                visit.push(Role::Other, change);
            } else if self.client.random.one_in(4) {
                visit.push(Role::Other, vec![b"DEL".to_vec(), key.clone()]);
            }
            if hostile {
                call.extend(self.client.group(&key, Way::Throttle));
            } else {
                let [max_burst, period, quantity] = [30, 3000, 4].map(|most| self.client.random.below(most));
                call.push(key.clone());
                call.extend([max_burst, 1, period + 1, quantity].map(|integer| integer.to_string().into()));
            }
            if !visit.keys.contains(&key) {
                visit.keys.push(key);
            }
        }
        if self.client.random.one_in(16) {
            call.truncate(call.len() - 1 - self.client.random.below(5));
        }
        self.look(&mut visit);
        visit.push(Role::Call, call);
        self.look(&mut visit);
        visit
    }

    /// One call of several keys, which are looked at before and after it.
    fn check_several(&mut self, visit: &Visit, seen: &Seen) -> Result<(), String> {
        let Seen { looks, replies, .. } = seen;
        let (before, after) = looks.split_at(visit.keys.len());
        let (Some(last_before), Some(first_after), Some(last_after)) = (before.last(), after.first(), after.last())
        else {
            return Err("nothing was seen".into());
        };
        let (Some(call), &[reply]) = (visit.calls().next(), replies.as_slice()) else {
            return Err("not one call".into());
        };
        let command = Command::of(call);
        let wrong =
            |what: String| format!("{}\n{what}\nreply: {reply:?}\nbefore: {before:#?}\nafter: {after:#?}", typed(call));
        self.made += 1;
        if looks.iter().any(|look| look.expired_by(last_after.time)) {
            *self.outcomes.entry(BLURRED.into()).or_default() += 1;
            return Ok(());
        }

        let found = |key: &[u8]| {
            let place = visit.keys.iter().position(|name| name == key);
            place.map_or(Ok(None), |place| before[place].found())
        };
        let times = [last_before.time - MILLISECOND, first_after.time + MILLISECOND];
        let [first, last] = times.map(|now| expected_of_groups(call, now, found));
        // A limit outlasts the clock from some moment in between on: either is right.
        if first.is_ok() != last.is_ok() {
            *self.outcomes.entry(BLURRED.into()).or_default() += 1;
            return Ok(());
        }
        let mut stored = Vec::new();
        let outcome = if let Value::ServerError(error) = reply {
            let error = error_text(error);
            if ![&first, &last].contains(&&Err(error.clone())) {
                return Err(wrong(format!("the model expects {first:?}")));
            }
            error
        } else {
            let (limited, groups) =
                limited_and_groups(reply).ok_or_else(|| wrong("not an integer and five for each limiter".into()))?;
            let (first, last) = (first.map_err(&wrong)?, last.map_err(&wrong)?);
            if groups.len() != first.len() {
                return Err(wrong(format!("the model expects {first:?}")));
            }
            let [any_first, any_last] = [&first, &last].map(|told| told.iter().any(|told| told.limited));
            // Became allowed in between: either is right.
            if any_first != any_last {
                *self.outcomes.entry(BLURRED.into()).or_default() += 1;
                return Ok(());
            }
            if limited != any_first {
                return Err(wrong(format!("the whole call is {}limited", if limited { "" } else { "not " })));
            }
            for ((group, key), (first, last)) in groups.iter().zip(call[1..].chunks(5)).zip(first.iter().zip(&last)) {
                all_between(group, in_units(*first, &command), in_units(*last, &command)).map_err(&wrong)?;
                match (first.change, last.change) {
                    (Change::Store(first), Change::Store(last)) => {
                        stored.push((&key[0], Some(first..=last)));
                    }
                    (Change::Delete, Change::Delete) => stored.push((&key[0], None)),
                    (Change::Nothing, Change::Nothing) => {}
                    // Became empty in between: either is right.
                    _ => {
                        *self.outcomes.entry(BLURRED.into()).or_default() += 1;
                        return Ok(());
                    }
                }
            }
            match (limited, stored.len()) {
                (true, _) => LIMITED,
                (false, 0) => LOOKED,
                _ => ALLOWED,
            }
            .to_string()
        };

        // What was stored may have expired before it was looked at.
        let gone = |tat: i128| expiry(tat) * MILLISECOND <= last_after.time;
        if stored.iter().any(|(_, bounds)| bounds.as_ref().is_some_and(|bounds| gone(*bounds.start()))) {
            *self.outcomes.entry(BLURRED.into()).or_default() += 1;
            return Ok(());
        }
        let mut bytes = 0;
        for (key, (before, after)) in visit.keys.iter().zip(before.iter().zip(after)) {
            let Some((_, bounds)) = stored.iter().find(|(name, _)| *name == key) else {
                if unchanged(before, after) {
                    continue;
                }
                return Err(wrong(format!("the key {:?} changed", Text(key.clone()))));
            };
            let Some(bounds) = bounds else {
                if after.dump.is_some() {
                    return Err(wrong(format!(
                        "all tokens of {:?} are back, and the key is still there",
                        Text(key.clone())
                    )));
                }
                bytes += replicated_bytes(key, Change::Delete);
                continue;
            };
            let tat = after.found().ok().flatten().filter(|tat| bounds.contains(tat));
            let tat = tat.ok_or_else(|| wrong(format!("the key {:?} has no TAT in {bounds:?}", Text(key.clone()))))?;
            if after.value != Some(Text(format!("{tat:019}").into())) || !after.expires_at(expiry(tat)) {
                return Err(wrong(format!(
                    "the key {:?} has not 19 digits, or another expiry than its TAT",
                    Text(key.clone())
                )));
            }
            bytes += replicated_bytes(key, Change::Store(tat));
        }
        if first_after.dirty - last_before.dirty != stored.len() as i64 {
            let (changes, expected) = (first_after.dirty - last_before.dirty, stored.len());
            return Err(wrong(format!("the server counts {changes} changes for its next save, not {expected}")));
        }
        let replicated = first_after.replicated - last_before.replicated;
        if !is_replicated(replicated, bytes) {
            return Err(wrong(wrongly_replicated(call, replicated, bytes)));
        }
        *self.outcomes.entry(outcome).or_default() += 1;
        Ok(())
    }
}
