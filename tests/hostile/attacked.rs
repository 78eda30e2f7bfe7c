//! A server under attack, and the state that it must have after each visit. Its clock stands still during a visit.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;

use redis::{Connection, RedisResult, Value};

use super::client::{Bytes, KEYS, Words, typed, words};
use super::visit::{Place, Visit};
use crate::support::aof::{self, AOF};
use crate::support::clock::{Clock, START};
use crate::support::commands::{Command, MILLISECOND};
use crate::support::expected::{ARITY, Answer, Found, MOST_QUOTAS, NOT_A_STATE, WRONG_TYPE, answer, expiry, state};
use crate::support::model::Change;
use crate::support::needs::{assert_key_sizes, is_redis_6_2};
use crate::support::{Server, difference, error_text};

pub struct Attacked {
    clock: Clock,
    server: Server,
    connection: Connection,
    /// The server's append-only file: it holds the commands that replicas are sent.
    aof: File,
    pub seen: Seen,
}

/// The effects of a visit, as they are on the server, or as they must be.
#[derive(Clone, Default)]
pub struct Seen {
    pub database: Database,
    /// The commands that replicas are sent, in order.
    effects: Vec<Words>,
    /// Fields of INFO: the changes since the last save, and how many calls of each command were allowed and limited.
    counts: BTreeMap<String, i64>,
}

/// All keys and their values.
pub type Database = BTreeMap<Bytes, Held>;

#[derive(Clone)]
pub struct Held {
    /// The text of a string; `None` for a value of another type.
    text: Option<Bytes>,
    /// The expiry in milliseconds since the epoch; `None` if the key does not expire.
    pub expires_at: Option<i64>,
}

const CHANGES: &str = "rdb_changes_since_last_save";

impl Attacked {
    pub fn start() -> Self {
        let (clock, server, mut connection) = Clock::start_with(START, &[&AOF[..], &["--hz", "1"]].concat());
        assert_key_sizes(&mut connection);
        let aof = File::open(&aof::files(&server.folder)[0]).unwrap();
        let mut attacked = Self { clock, server, connection, aof, seen: Seen::default() };
        // The counts of INFO at the start are those of a visit without commands.
        let nothing = Visit { now: START, place: Place::Other, commands: Vec::new() };
        attacked.visit(&nothing).map(|_| attacked).unwrap()
    }

    /// Makes a visit. Returns the answers to its calls if all are right, otherwise a description of the first mistake.
    pub fn visit(&mut self, visit: &Visit) -> Result<Vec<Result<Answer, String>>, String> {
        self.clock.set(visit.now);
        let (replies, seen) = self.send(visit).map_err(|error| format!("{error}\n{}", self.server.log()))?;
        let mut due = std::mem::replace(&mut self.seen, seen);
        if visit.place == Place::Other {
            return Ok(Vec::new());
        }
        due.effects.clear();
        due.expire(visit.now);
        let answered = due.calls(visit, &replies)?;
        let sent = &mut self.seen.effects;
        if is_redis_6_2() && visit.place == Place::Transaction && sent.contains(&words(&["EXEC"])) {
            // Redis 6.2 counts EXEC as a change.
            due.count(CHANGES);
        }
        // The server itself makes a transaction of several effects, and of a module's single one on Redis 6.2.
        let around: [&[u8]; 3] = [b"SELECT", b"MULTI", b"EXEC"];
        sent.retain(|effect| !around.contains(&effect[0].as_slice()));
        // Some servers replicate an expiry as UNLINK.
        sent.iter_mut().filter(|effect| effect[0] == b"UNLINK").for_each(|effect| effect[0] = "DEL".into());
        let (seen, due) = (self.seen.facts(), due.facts());
        let differ = difference(&seen, &due).into_iter().map(|(what, facts)| {
            let [seen, due] = facts.map(|fact| fact.map_or("nothing", String::as_str));
            format!("{what}: there is\n  {seen}\nand has to be\n  {due}")
        });
        if seen == due { Ok(answered) } else { Err(differ.collect::<Vec<_>>().join("\n")) }
    }

    /// Sends the commands of a visit. Returns the replies, and the state of the server afterwards.
    fn send(&mut self, visit: &Visit) -> RedisResult<(Vec<Value>, Seen)> {
        let keys = KEYS.iter().flat_map(|key| ["GET", "PTTL"].map(|name| vec![name.into(), key.to_vec()]));
        let infos = ["persistence", "redis-cell"].map(|section| words(&["INFO", section]));
        let sent = visit.sent();
        let all = sent.iter().cloned().chain(keys).chain(infos);
        let bytes: Bytes = all.flat_map(|words| redis::Cmd::new().arg(words).get_packed_command()).collect();
        self.connection.send_packed_command(&bytes)?;

        let mut read = || self.connection.recv_response();
        let replies = sent.iter().map(|_| read()).collect::<RedisResult<_>>()?;
        let mut database = Database::new();
        for key in KEYS {
            let (text, time_to_live): (_, i64) = (read()?, redis::from_redis_value(read()?)?);
            let text = match text {
                Value::Nil => continue,
                Value::BulkString(text) => Some(text),
                _ => None,
            };
            let expires_at = (time_to_live >= 0).then_some(visit.now / MILLISECOND as i64 + time_to_live);
            database.insert(key.to_vec(), Held { text, expires_at });
        }
        let infos: [String; 2] = [redis::from_redis_value(read()?)?, redis::from_redis_value(read()?)?];
        let fields = infos.iter().flat_map(|info| info.lines()).filter_map(|line| line.split_once(':'));
        let fields =
            fields.filter(|(name, _)| *name == CHANGES || name.ends_with("_allowed") || name.ends_with("_limited"));
        let counts = fields.map(|(name, count)| (name.to_string(), count.parse().unwrap())).collect();

        let mut effects = Vec::new();
        self.aof.read_to_end(&mut effects)?;
        Ok((replies, Seen { database, effects: aof::parse(&effects), counts }))
    }
}

/// The methods compute the state that must be seen after a visit from the state before it.
impl Seen {
    /// Deletes the keys that have expired by `now`. A server keeps a key until the end of the millisecond in which it
    /// expires, and then until a call or the client's GET reads it.
    fn expire(&mut self, now: i64) {
        let now = now / MILLISECOND as i64;
        self.database.retain(|key, held| {
            let is_gone = held.expires_at.is_some_and(|expires_at| expires_at < now);
            if is_gone {
                self.effects.push(vec!["DEL".into(), key.clone()]);
            }
            !is_gone
        });
    }

    /// Compares the replies with the right answers, and makes the changes that the calls have to make.
    fn calls(&mut self, visit: &Visit, replies: &[Value]) -> Result<Vec<Result<Answer, String>>, String> {
        let executed = replies.last();
        let of_calls = match (visit.place, executed) {
            (Place::Transaction, Some(Value::Array(of_calls))) => of_calls,
            (Place::Transaction, _) => return Err(format!("EXEC: {executed:?}")),
            _ => &replies[visit.around()[0].len()..],
        };
        let mut answered = Vec::new();
        for (call, reply) in visit.commands.iter().zip(of_calls) {
            let answer = answer(call, visit.now.into(), |key| found(&self.database, key));
            check(visit.place, reply, &answer).map_err(|wrong| format!("{}: {wrong}", typed(call)))?;
            self.apply(call, &answer);
            answered.push(answer);
        }
        let changes = answered.iter().flatten().flat_map(|answer| &answer.changes);
        let written = changes.filter(|(_, change)| *change != Change::Nothing).count();
        if visit.place != Place::Transaction && (executed == Some(&Value::Nil)) != (written > 0) {
            return Err(format!("{written} keys were written, but EXEC after WATCH: {executed:?}"));
        }
        Ok(answered)
    }

    /// Makes the changes of a call.
    fn apply(&mut self, call: &Words, answer: &Result<Answer, String>) {
        let Ok(Answer { told, changes, .. }) = answer else { return };
        let outcome = if told.iter().any(|told| told.limited) { "limited" } else { "allowed" };
        self.count(&format!("{}_{outcome}", Command::of(call).name.replace("cl.", "redis-cell_")));
        for (key, change) in changes {
            let key = key.clone();
            let effect = match change {
                Change::Nothing => continue,
                Change::Delete => {
                    self.database.remove(&key);
                    vec!["DEL".into(), key]
                }
                Change::Store(tats) => {
                    let expires_at = tats.iter().copied().map(expiry).max().unwrap_or_default();
                    let held = Held { text: Some(state(tats)), expires_at: Some(expires_at as i64) };
                    self.database.insert(key.clone(), held);
                    vec!["SET".into(), key, state(tats), "PXAT".into(), expires_at.to_string().into()]
                }
            };
            self.effects.push(effect);
            self.count(CHANGES);
        }
    }

    fn count(&mut self, field: &str) {
        *self.counts.entry(field.into()).or_default() += 1;
    }

    /// Returns everything as text: the keys, the effects on each of them in order, and the counts.
    pub fn facts(&self) -> BTreeMap<String, String> {
        let mut facts = BTreeMap::<String, String>::new();
        for (key, Held { text, expires_at }) in &self.database {
            let text = text.as_ref().map_or("another type".into(), |text| typed([text]));
            facts.insert(format!("key {}", typed([key])), format!("{text}, expires at {expires_at:?}"));
        }
        for effect in &self.effects {
            let of_a_key = facts.entry(format!("effects on {}", typed(&effect[1..2]))).or_default();
            *of_a_key += &format!("{}; ", typed(effect));
        }
        facts.extend(self.counts.iter().map(|(field, count)| (field.clone(), count.to_string())));
        facts
    }
}

/// Compares a reply with the right answer. Returns both as text if they differ.
fn check(place: Place, reply: &Value, answer: &Result<Answer, String>) -> Result<(), String> {
    let reply = reply.clone().extract_error().map_err(|error| match error_text(&error) {
        // Redis 6.2 names the command in the caller's spelling, and a script gets another text.
        text if text.to_lowercase().starts_with("err wrong number of arg") => ARITY.into(),
        text => text,
    });
    let due =
        answer.as_ref().map(|answer| if place == Place::Lua { in_lua(&answer.reply) } else { answer.reply.clone() });
    let due = due.map_err(String::clone);
    if reply == due { Ok(()) } else { Err(format!("the reply is {reply:?}, and has to be {due:?}")) }
}

/// Returns the reply as a script sees it: a number in Lua has 53 bits.
fn in_lua(reply: &Value) -> Value {
    match reply {
        Value::Int(integer) => Value::Int(*integer as f64 as i64),
        Value::Array(items) => Value::Array(items.iter().map(in_lua).collect()),
        other => other.clone(),
    }
}

/// Returns the moments that a call finds in this key, or the error for its value.
pub fn found(database: &Database, key: &[u8]) -> Found {
    let Some(held) = database.get(key) else { return Ok(Vec::new()) };
    let text = held.text.as_ref().ok_or(WRONG_TYPE)?;
    let tats = text.chunks(19).map(|tat| {
        let tat = str::from_utf8(tat).ok().filter(|tat| tat.len() == 19 && !tat.starts_with(['+', '-']));
        tat.and_then(|tat| tat.parse::<i64>().ok()).map(i128::from)
    });
    let tats: Option<Vec<i128>> = tats.collect();
    tats.filter(|tats| (1..=MOST_QUOTAS).contains(&tats.len())).ok_or(NOT_A_STATE)
}
