//! The server under attack, and the facts that must hold after each batch. The server's clock stands still during a
//! batch.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;

use redis::{Connection, RedisResult, Value};

use super::client::{Batch, Bytes, KEYS, Via, Words, typed, words};
use crate::support::aof::{self, AOF};
use crate::support::clock::{Clock, START};
use crate::support::commands::{Command, MILLISECOND};
use crate::support::expected::{ARITY, Expected, MAX_QUOTAS, NOT_A_STATE, State, WRONG_TYPE, expected, expiry, text};
use crate::support::model::Change;
use crate::support::needs::{assert_key_sizes, is_redis_6_2};
use crate::support::{Server, difference, error_text};

pub struct Target {
    clock: Clock,
    server: Server,
    connection: Connection,
    /// The server's append-only file, which holds the same commands that replicas are sent.
    aof: File,
    pub facts: Facts,
}

/// The state after a batch, either as the server shows it or as the test expects it.
#[derive(Clone, Default)]
pub struct Facts {
    pub database: Database,
    /// The commands that the server sends to replicas, in order.
    effects: Vec<Words>,
    /// Numbers from INFO: the changes since the last save, and how many calls of each command were allowed and limited.
    counts: BTreeMap<String, i64>,
}

/// All keys and their values.
pub type Database = BTreeMap<Bytes, Entry>;

#[derive(Clone)]
pub struct Entry {
    /// The text of a string, or `None` for a value of another type.
    text: Option<Bytes>,
    /// The expiry in milliseconds since the epoch, or `None` if the key does not expire.
    pub expires_at: Option<i64>,
}

const CHANGES: &str = "rdb_changes_since_last_save";

impl Target {
    pub fn start() -> Self {
        let (clock, server, mut connection) = Clock::start_with(START, &[&AOF[..], &["--hz", "1"]].concat());
        assert_key_sizes(&mut connection);
        let aof = File::open(&aof::files(&server.folder)[0]).unwrap();
        let mut target = Self { clock, server, connection, aof, facts: Facts::default() };
        // Run a batch without commands, to read the initial counts from INFO.
        let nothing = Batch { now: START, via: Via::Other, commands: Vec::new() };
        target.run(&nothing).map(|_| target).unwrap()
    }

    /// Runs a batch. Returns the expected outcomes of its calls or, if anything differs from them, a description of the
    /// difference.
    pub fn run(&mut self, batch: &Batch) -> Result<Vec<Result<Expected, String>>, String> {
        self.clock.set(batch.now);
        let (replies, seen) = self.send(batch).map_err(|error| format!("{error}\n{}", self.server.log()))?;
        let mut expected = std::mem::replace(&mut self.facts, seen);
        if batch.via == Via::Other {
            return Ok(Vec::new());
        }
        expected.effects.clear();
        expected.expire(batch.now);
        let outcomes = expected.calls(batch, &replies)?;
        let sent = &mut self.facts.effects;
        if is_redis_6_2() && batch.via == Via::Transaction && sent.contains(&words(&["EXEC"])) {
            // Redis 6.2 counts EXEC as a change.
            expected.count(CHANGES);
        }
        // Ignore what the server adds: it wraps several effects in a transaction, and Redis 6.2 wraps even a single
        // one.
        let around: [&[u8]; 3] = [b"SELECT", b"MULTI", b"EXEC"];
        sent.retain(|effect| !around.contains(&effect[0].as_slice()));
        // Some servers replicate the deletion of an expired key as UNLINK.
        sent.iter_mut().filter(|effect| effect[0] == b"UNLINK").for_each(|effect| effect[0] = "DEL".into());
        let (seen, expected) = (self.facts.shown(), expected.shown());
        let differ = difference(&seen, &expected);
        if differ.is_empty() {
            Ok(outcomes)
        } else {
            Err(format!("the facts differ from the expected ones: {differ:#?}"))
        }
    }

    /// Sends the commands of a batch. Returns the replies and the facts after the batch.
    fn send(&mut self, batch: &Batch) -> RedisResult<(Vec<Value>, Facts)> {
        let keys = KEYS.iter().flat_map(|key| ["GET", "PTTL"].map(|name| vec![name.into(), key.to_vec()]));
        let infos = ["persistence", "redis-cell"].map(|section| words(&["INFO", section]));
        let sent = batch.sent();
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
            let expires_at = (time_to_live >= 0).then_some(batch.now / MILLISECOND as i64 + time_to_live);
            database.insert(key.to_vec(), Entry { text, expires_at });
        }
        let infos: [String; 2] = [redis::from_redis_value(read()?)?, redis::from_redis_value(read()?)?];
        let fields = infos.iter().flat_map(|info| info.lines()).filter_map(|line| line.split_once(':'));
        let fields =
            fields.filter(|(name, _)| *name == CHANGES || name.ends_with("_allowed") || name.ends_with("_limited"));
        let counts = fields.map(|(name, count)| (name.to_string(), count.parse().unwrap())).collect();

        let mut effects = Vec::new();
        self.aof.read_to_end(&mut effects)?;
        Ok((replies, Facts { database, effects: aof::parse(&effects), counts }))
    }
}

/// These methods turn the facts before a batch into the facts that are expected after it.
impl Facts {
    /// Deletes the keys that have expired by `now`. A server keeps a key until the end of the millisecond in which it
    /// expires, and then until a call or the client's GET reads the key.
    fn expire(&mut self, now: i64) {
        let now = now / MILLISECOND as i64;
        let is_gone = |entry: &Entry| entry.expires_at.is_some_and(|expires_at| expires_at < now);
        let gone = self.database.iter().filter(|(_, entry)| is_gone(entry));
        self.effects.extend(gone.map(|(key, _)| vec!["DEL".into(), key.clone()]));
        self.database.retain(|_, entry| !is_gone(entry));
    }

    /// Applies the changes that the calls should make. Returns their expected outcomes, or the first wrong reply.
    fn calls(&mut self, batch: &Batch, replies: &[Value]) -> Result<Vec<Result<Expected, String>>, String> {
        let executed = replies.last();
        let of_calls = match (batch.via, executed) {
            (Via::Transaction, Some(Value::Array(of_calls))) => of_calls,
            (Via::Transaction, _) => return Err(format!("EXEC: {executed:?}")),
            _ => &replies[batch.around()[0].len()..],
        };
        let mut outcomes = Vec::new();
        for (call, reply) in batch.commands.iter().zip(of_calls) {
            let outcome = expected(call, batch.now.into(), |key| state(&self.database, key));
            check(batch.via, reply, &outcome).map_err(|wrong| format!("{}: {wrong}", typed(call)))?;
            self.apply(call, &outcome);
            outcomes.push(outcome);
        }
        let decisions = outcomes.iter().flatten().flat_map(|outcome| &outcome.decisions);
        let written = decisions.filter(|(_, decision)| decision.change != Change::Nothing).count();
        if batch.via != Via::Transaction && (executed == Some(&Value::Nil)) != (written > 0) {
            return Err(format!("{written} keys were written, but EXEC after WATCH returned {executed:?}"));
        }
        Ok(outcomes)
    }

    /// Applies the changes that a call should make.
    fn apply(&mut self, call: &Words, outcome: &Result<Expected, String>) {
        let Ok(Expected { limited, decisions, .. }) = outcome else { return };
        let result = if *limited { "limited" } else { "allowed" };
        self.count(&format!("{}_{result}", Command::of(call).name.replace("cl.", "redis-cell_")));
        for (key, decision) in decisions {
            let key = key.clone();
            let effect = match &decision.change {
                Change::Nothing => continue,
                Change::Delete => {
                    self.database.remove(&key);
                    vec!["DEL".into(), key]
                }
                Change::Store(tats) => {
                    let expires_at = tats.iter().copied().map(expiry).max().unwrap_or_default();
                    let entry = Entry { text: Some(text(tats)), expires_at: Some(expires_at as i64) };
                    self.database.insert(key.clone(), entry);
                    vec!["SET".into(), key, text(tats), "PXAT".into(), expires_at.to_string().into()]
                }
            };
            self.effects.push(effect);
            self.count(CHANGES);
        }
    }

    fn count(&mut self, field: &str) {
        *self.counts.entry(field.into()).or_default() += 1;
    }

    /// Returns all facts as text: the keys, the effects on each key in order, and the counts.
    pub fn shown(&self) -> BTreeMap<String, String> {
        let mut shown = BTreeMap::<String, String>::new();
        for (key, Entry { text, expires_at }) in &self.database {
            let text = text.as_ref().map_or("another type".into(), |text| typed([text]));
            shown.insert(format!("key {}", typed([key])), format!("{text}, expires at {expires_at:?}"));
        }
        for effect in &self.effects {
            let of_a_key = shown.entry(format!("effects on {}", typed(&effect[1..2]))).or_default();
            *of_a_key += &format!("{}; ", typed(effect));
        }
        shown.extend(self.counts.iter().map(|(field, count)| (field.clone(), count.to_string())));
        shown
    }
}

/// Compares a reply with the expected one. Returns both as text if they differ.
fn check(via: Via, reply: &Value, outcome: &Result<Expected, String>) -> Result<(), String> {
    let reply = reply.clone().extract_error().map_err(|error| match error_text(&error) {
        // Redis 6.2 repeats the command's name with the caller's capitalization, and a script gets a different text.
        text if text.to_lowercase().starts_with("err wrong number of arg") => ARITY.into(),
        text => text,
    });
    let expected = match outcome {
        Err(error) => Err(error.clone()),
        Ok(Expected { reply, .. }) if via == Via::Lua => Ok(in_lua(reply)),
        Ok(Expected { reply, .. }) => Ok(reply.clone()),
    };
    if reply == expected { Ok(()) } else { Err(format!("the reply is {reply:?}, not {expected:?}")) }
}

/// Returns the reply as a script sees it. Lua's numbers have only 53 bits of precision.
fn in_lua(reply: &Value) -> Value {
    match reply {
        Value::Int(integer) => Value::Int(*integer as f64 as i64),
        Value::Array(items) => Value::Array(items.iter().map(in_lua).collect()),
        other => other.clone(),
    }
}

pub fn state(database: &Database, key: &[u8]) -> State {
    let Some(entry) = database.get(key) else { return Ok(Vec::new()) };
    let text = entry.text.as_ref().ok_or(WRONG_TYPE)?;
    let tats = text.chunks(19).map(|tat| {
        let tat = str::from_utf8(tat).ok().filter(|tat| tat.len() == 19 && !tat.starts_with(['+', '-']));
        tat.and_then(|tat| tat.parse::<i64>().ok()).map(i128::from)
    });
    let tats: Option<Vec<i128>> = tats.collect();
    tats.filter(|tats| (1..=MAX_QUOTAS).contains(&tats.len())).ok_or(NOT_A_STATE)
}
