//! A server under attack, whose clock stands still during each visit, and all that it has to hold.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;

use redis::{Connection, RedisResult, Value};

use super::visit::{Place, Text, Visit, packed};
use crate::support::aof::{self, AOF};
use crate::support::clock::{Clock, START};
use crate::support::expected::{
    Answer, Command, Found, MILLISECOND, NOT_A_STATE, WRONG_TYPE, answer, arity, error_text, expiry, state,
};
use crate::support::hostile::{self, Bytes, KEYS, typed, words};
use crate::support::model::Change;
use crate::support::needs::{debug_command, is_redis_6_2};
use crate::support::{Server, run};

pub struct Attacked {
    clock: Clock,
    server: Server,
    connection: Connection,
    /// The server's, which holds what replicas are sent.
    aof: File,
    /// All that the server holds.
    pub database: Database,
    counts: Counts,
}

/// Fields of INFO: changes since the last save, and calls of each command that were allowed or limited.
type Counts = BTreeMap<String, i64>;

const CHANGES: &str = "rdb_changes_since_last_save";

/// Every key that is there.
pub type Database = BTreeMap<Bytes, Held>;

#[derive(Debug, Clone, PartialEq)]
pub struct Held {
    pub value: Content,
    /// In milliseconds since the epoch; below 0 if it does not expire.
    pub expires_at: i64,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    Text(Text),
    /// Of another type than a string: its DUMP.
    Other(Text),
}

impl Held {
    /// A server keeps a key for the millisecond in which it expires.
    fn is_there(&self, now: i64) -> bool {
        self.expires_at < 0 || self.expires_at >= now / MILLISECOND as i64
    }
}

impl Attacked {
    pub fn start() -> Self {
        // Compression leaves some bytes to chance, and DUMPs are compared.
        let settings = [&AOF[..], &["--hz", "1", "--rdbcompression", "no"], debug_command()].concat();
        let (clock, server) = Clock::start_with(START, &settings);
        let mut connection = server.connect();
        // What expires between two visits would be replicated in between.
        run::<()>(&mut connection, "DEBUG SET-ACTIVE-EXPIRE 0").unwrap();
        let aof = File::open(&aof::files(&server.folder)[0]).unwrap();
        Self { clock, server, connection, aof, database: Database::new(), counts: Counts::new() }
    }

    /// Makes a visit. Returns what each call had to get, and got, or what is wrong.
    pub fn visit(&mut self, visit: &Visit) -> Result<Vec<Result<Answer, String>>, String> {
        self.clock.set(visit.now);
        let (replies, database, counts) =
            self.send(visit).map_err(|error| format!("{error}\n{}", self.server.log()))?;
        let mut effects = Vec::new();
        self.aof.read_to_end(&mut effects).map_err(|error| error.to_string())?;
        let before = std::mem::replace(&mut self.database, database);
        let counts = std::mem::replace(&mut self.counts, counts);
        if visit.place == Place::Other {
            return Ok(Vec::new());
        }
        let mut expected = Expected { database: before, effects: Vec::new(), counts };
        let mut effects = aof::parse(&effects);
        if is_redis_6_2() && visit.place == Place::Transaction && effects.contains(&words(&["EXEC"])) {
            // It counts EXEC as well.
            expected.count(CHANGES);
        }
        effects.retain(|effect| !["MULTI", "EXEC", "SELECT"].iter().any(|name| name.as_bytes() == effect[0]));
        expected.expire(visit.now, &mut effects)?;
        let answered = expected.calls(visit, &replies)?;
        // A call of several keys may write them in any order.
        effects.sort_by(|one, other| one[1].cmp(&other[1]));
        expected.effects.sort_by(|one, other| one[1].cmp(&other[1]));
        expected.compare(&self.database, &effects, &self.counts)?;
        Ok(answered)
    }

    /// Returns the replies, and what is there afterwards.
    fn send(&mut self, visit: &Visit) -> RedisResult<(Vec<Value>, Database, Counts)> {
        // Redis 6.2 only tells how long a key still has.
        let (expiry, since) = match is_redis_6_2() {
            true => ("PTTL", visit.now / MILLISECOND as i64),
            false => ("PEXPIRETIME", 0),
        };
        let look = KEYS.iter().flat_map(|key| ["GET", "DUMP", expiry].map(|name| vec![name.into(), key.to_vec()]));
        let infos = [words(&["INFO", "persistence"]), words(&["INFO", "redis-cell"])];
        let packed = [visit.packed(), packed(look.chain(infos))].concat();

        self.connection.send_packed_command(&packed)?;
        let (before, after) = visit.around();
        let replies = before + visit.commands.len() + after;
        let replies = (0..replies).map(|_| self.connection.recv_response()).collect::<RedisResult<_>>()?;
        let mut read = || self.connection.recv_response();
        let mut database = Database::new();
        for key in KEYS {
            let (text, dump) = (read()?, redis::from_redis_value(read()?)?);
            let expires_at: i64 = redis::from_redis_value(read()?)?;
            let value = match text {
                Value::Nil => continue,
                Value::BulkString(text) => Content::Text(Text(text)),
                _ => Content::Other(Text(dump)),
            };
            let expires_at = if expires_at >= 0 { expires_at + since } else { expires_at };
            database.insert(key.to_vec(), Held { value, expires_at });
        }
        let infos: [String; 2] = [redis::from_redis_value(read()?)?, redis::from_redis_value(read()?)?];
        let fields = infos.iter().flat_map(|info| info.lines()).filter_map(|line| line.split_once(':'));
        let fields =
            fields.filter(|(name, _)| *name == CHANGES || name.ends_with("_allowed") || name.ends_with("_limited"));
        let counts = fields.filter_map(|(name, count)| Some((name.into(), count.parse().ok()?))).collect();
        Ok((replies, database, counts))
    }
}

/// What has to be there after a visit, and what has to have been replicated and counted.
struct Expected {
    database: Database,
    effects: Vec<hostile::Command>,
    counts: Counts,
}

impl Expected {
    /// What has expired goes before anything else is done to its key, and its DEL is replicated.
    fn expire(&mut self, now: i64, effects: &mut Vec<hostile::Command>) -> Result<(), String> {
        let keys: Vec<Bytes> = self.database.keys().cloned().collect();
        self.database.retain(|_, held| held.is_there(now));
        for key in keys.into_iter().filter(|key| !self.database.contains_key(key)) {
            let first = effects.iter().position(|effect| effect[1] == key);
            let first = first.map(|first| effects.remove(first)).unwrap_or_default();
            if first != [&b"DEL"[..], &key] && first != [&b"UNLINK"[..], &key] {
                return Err(format!("an expired key was replicated as {:?}", typed(&first)));
            }
        }
        Ok(())
    }

    /// Holds the replies against the answers, and keeps what the calls leave behind.
    fn calls(&mut self, visit: &Visit, replies: &[Value]) -> Result<Vec<Result<Answer, String>>, String> {
        let mut replies = &replies[visit.around().0..];
        if visit.place == Place::Transaction {
            // Some servers know how many arguments there are to be, and do not even begin such a transaction.
            match &replies[visit.commands.len()] {
                Value::Array(of_calls) => replies = of_calls,
                exec => {
                    let known = visit.commands.iter().any(|call| is_arity(call, &self.answer(call, visit.now)));
                    return if known { Ok(Vec::new()) } else { Err(format!("EXEC: {exec:?}")) };
                }
            }
        }
        let mut answered = Vec::new();
        for (call, reply) in visit.commands.iter().zip(replies) {
            let answer = self.answer(call, visit.now);
            if let Err(expected) = check(visit.place, call, reply, &answer) {
                return Err(format!("{}: the reply is {reply:?}, and has to be {expected}", typed(call)));
            }
            self.apply(call, &answer);
            answered.push(answer);
        }
        let written = self.effects.len();
        if visit.place == Place::Watched && (replies.last() == Some(&Value::Nil)) != (written > 0) {
            return Err(format!("{written} keys were written, but EXEC after WATCH: {:?}", replies.last()));
        }
        Ok(answered)
    }

    fn answer(&self, call: &hostile::Command, now: i64) -> Result<Answer, String> {
        answer(call, now.into(), |key| found(&self.database, now, key))
    }

    fn count(&mut self, field: &str) {
        *self.counts.entry(field.into()).or_default() += 1;
    }

    fn apply(&mut self, call: &hostile::Command, answer: &Result<Answer, String>) {
        let Ok(Answer { told, changes, .. }) = answer else { return };
        let name = Command::of(call).name.replace("cl.", "redis-cell_");
        let outcome = if told.iter().any(|told| told.limited) { "limited" } else { "allowed" };
        self.count(&format!("{name}_{outcome}"));
        for (key, change) in changes {
            let key = key.clone();
            match change {
                Change::Nothing => continue,
                Change::Delete => {
                    self.database.remove(&key);
                    self.effects.push(vec!["DEL".into(), key]);
                }
                Change::Store(tats) => {
                    let expires_at = tats.iter().copied().map(expiry).max().unwrap_or_default();
                    let [set, px, milliseconds] = ["SET", "PXAT", &expires_at.to_string()].map(Bytes::from);
                    self.effects.push(vec![set, key.clone(), state(tats), px, milliseconds]);
                    let held = Held { value: Content::Text(Text(state(tats))), expires_at: expires_at as i64 };
                    self.database.insert(key, held);
                }
            }
            self.count(CHANGES);
        }
    }

    fn compare(&self, database: &Database, effects: &[hostile::Command], counts: &Counts) -> Result<(), String> {
        let typed = |effects: &[hostile::Command]| effects.iter().map(|effect| typed(effect)).collect::<Vec<_>>();
        let wrong = self.counts.iter().find(|(field, count)| counts.get(*field) != Some(count));
        if *database != self.database {
            Err(format!("the keys are {database:?}, and have to be {:?}", self.database))
        } else if effects != self.effects {
            Err(format!("replicas are sent {:?}, and not {:?}", typed(effects), typed(&self.effects)))
        } else if let Some((field, count)) = wrong {
            Err(format!("{field} is {:?}, and has to be {count}", counts.get(field)))
        } else {
            Ok(())
        }
    }
}

/// Whether it is refused for the number of its arguments.
fn is_arity(call: &hostile::Command, answer: &Result<Answer, String>) -> bool {
    answer.as_ref().is_err_and(|error| *error == arity(&Command::of(call).name))
}

/// Compares a reply. Returns the right one if it is wrong.
pub fn check(
    place: Place,
    call: &hostile::Command,
    reply: &Value,
    answer: &Result<Answer, String>,
) -> Result<(), String> {
    match (answer, reply) {
        (Ok(answer), reply) => {
            let expected = if place == Place::Lua { in_lua(&answer.reply) } else { answer.reply.clone() };
            if *reply == expected { Ok(()) } else { Err(format!("{expected:?}")) }
        }
        (Err(expected), Value::ServerError(error)) => {
            let error = error_text(error);
            // Redis 6.2 names the command as the caller wrote it. A script has words of its own, where the server knows
            // how many arguments there are to be.
            let other = is_arity(call, answer)
                && (error.to_lowercase() == expected.to_lowercase()
                    || (place == Place::Lua && error.starts_with("ERR Wrong number of args calling ")));
            if error == *expected || other { Ok(()) } else { Err(expected.clone()) }
        }
        (Err(expected), _) => Err(expected.clone()),
    }
}

/// Lua's numbers have 53 bits.
fn in_lua(reply: &Value) -> Value {
    match reply {
        Value::Int(integer) => Value::Int(*integer as f64 as i64),
        Value::Array(items) => Value::Array(items.iter().map(in_lua).collect()),
        other => other.clone(),
    }
}

/// What a call that is made now finds in this key.
pub fn found(database: &Database, now: i64, key: &[u8]) -> Found {
    let Some(held) = database.get(key).filter(|held| held.is_there(now)) else { return Ok(Vec::new()) };
    let Content::Text(Text(text)) = &held.value else { return Err(WRONG_TYPE) };
    let tats = text.chunks(19).map(|tat| {
        let tat = std::str::from_utf8(tat).ok().filter(|tat| tat.len() == 19 && !tat.starts_with(['+', '-']));
        tat.and_then(|tat| tat.parse::<i64>().ok()).map(i128::from)
    });
    let tats: Option<Vec<i128>> = tats.collect();
    tats.filter(|tats| (1..=8).contains(&tats.len())).ok_or(NOT_A_STATE)
}
