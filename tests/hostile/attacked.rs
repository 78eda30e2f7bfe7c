//! A server under attack, and the state that it must have after each visit. Its clock stands still during a visit.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;

use redis::{Connection, RedisResult, Value};

use super::client::{Bytes, KEYS, Words, typed, words};
use super::visit::{Place, Text, Visit, keys, packed};
use crate::support::aof::{self, AOF};
use crate::support::clock::{Clock, START};
use crate::support::commands::{Command, MILLISECOND};
use crate::support::expected::{Answer, Found, MOST_QUOTAS, NOT_A_STATE, WRONG_TYPE, answer, arity, expiry, state};
use crate::support::model::Change;
use crate::support::needs::{assert_key_sizes, is_redis_6_2};
use crate::support::{Server, difference, error_text};

pub struct Attacked {
    clock: Clock,
    server: Server,
    connection: Connection,
    /// The server's append-only file: it holds the commands that replicas are sent.
    aof: File,
    /// The commands that tell the server's state.
    look: Bytes,
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

#[derive(Debug, Clone, PartialEq)]
pub struct Held {
    pub value: Content,
    /// The expiry in milliseconds since the epoch; below 0 if the key does not expire.
    pub expires_at: i64,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    Text(Text),
    /// The DUMP of a value of another type than a string.
    Other(Text),
}

const CHANGES: &str = "rdb_changes_since_last_save";

impl Attacked {
    pub fn start() -> Self {
        // The visits compare DUMPs. Compression would leave some of their bytes to chance.
        let settings = [&AOF[..], &["--hz", "1", "--rdbcompression", "no"]].concat();
        let (clock, server, mut connection) = Clock::start_with(START, &settings);
        assert_key_sizes(&mut connection);
        let aof = File::open(&aof::files(&server.folder)[0]).unwrap();
        // Redis 6.2 only tells the time to live of a key, and not its expiry.
        let expiry = if is_redis_6_2() { "PTTL" } else { "PEXPIRETIME" };
        let keys = KEYS.iter().flat_map(|key| ["GET", "DUMP", expiry].map(|name| vec![name.into(), key.to_vec()]));
        let infos = ["persistence", "redis-cell"].map(|section| words(&["INFO", section]));
        let look = packed(keys.chain(infos));
        let mut attacked = Self { clock, server, connection, aof, look, seen: Seen::default() };
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
        let answered = due.calls(visit, &replies)?;
        // The client's GET of each key deletes those that have expired since.
        for key in KEYS {
            let gone = due.expire(visit.now, [&key.to_vec()]);
            due.effects.extend(gone);
        }
        let sent = &mut self.seen.effects;
        if is_redis_6_2() && visit.place == Place::Transaction && sent.contains(&words(&["EXEC"])) {
            // Redis 6.2 counts EXEC as a change.
            due.count(CHANGES);
        }
        // Redis 6.2 puts MULTI and EXEC around a single write of a module, and in scripts and transactions around none.
        let left_out: &[&[u8]] = if is_redis_6_2() { &[b"SELECT", b"MULTI", b"EXEC"] } else { &[b"SELECT"] };
        sent.retain(|effect| !left_out.contains(&effect[0].as_slice()));
        // Some servers replicate an expiry as UNLINK.
        sent.iter_mut().filter(|effect| effect[0] == b"UNLINK").for_each(|effect| effect[0] = "DEL".into());
        self.seen.compare(&due)?;
        Ok(answered)
    }

    /// Sends the commands of a visit. Returns the replies, and the state of the server afterwards.
    fn send(&mut self, visit: &Visit) -> RedisResult<(Vec<Value>, Seen)> {
        self.connection.send_packed_command(&[visit.packed().as_slice(), &self.look].concat())?;

        let mut read = || self.connection.recv_response();
        let (before, after) = visit.around();
        let replies = (0..before + visit.commands.len() + after).map(|_| read()).collect::<RedisResult<_>>()?;
        let mut database = Database::new();
        let since = if is_redis_6_2() { visit.now / MILLISECOND as i64 } else { 0 };
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
        let counts = fields.map(|(name, count)| (name.to_string(), count.parse::<i64>().unwrap())).collect();

        let mut effects = Vec::new();
        self.aof.read_to_end(&mut effects)?;
        Ok((replies, Seen { database, effects: aof::parse(&effects), counts }))
    }
}

/// The methods compute the state that must be seen after a visit from the state before it.
impl Seen {
    /// Deletes those of these keys that have expired by `now`. Returns what replicas are sent.
    fn expire<'a>(&mut self, now: i64, keys: impl IntoIterator<Item = &'a Bytes>) -> Vec<Words> {
        let mut gone = Vec::new();
        for key in keys {
            if self.database.get(key).is_some_and(|held| !held.is_there(now)) {
                self.database.remove(key);
                gone.push(vec!["DEL".into(), key.clone()]);
            }
        }
        gone
    }

    /// Compares the replies with the right answers, and makes the changes that the calls have to make.
    fn calls(&mut self, visit: &Visit, replies: &[Value]) -> Result<Vec<Result<Answer, String>>, String> {
        let now = visit.now.into();
        if visit.place == Place::Watched {
            let gone = self.expire(visit.now, visit.commands.iter().flat_map(|call| keys(call)));
            self.effects.extend(at_once(gone));
        }
        let mut replies = &replies[visit.around().0..];
        if visit.place == Place::Transaction {
            // Some servers check the number of arguments when a call is queued, and then refuse the whole transaction.
            match &replies[visit.commands.len()] {
                Value::Array(of_calls) => replies = of_calls,
                exec => {
                    let known =
                        visit.commands.iter().any(|call| is_arity(call, &answer(call, now, |_| Err(WRONG_TYPE))));
                    return if known { Ok(Vec::new()) } else { Err(format!("EXEC: {exec:?}")) };
                }
            }
        }
        let mut answered = Vec::new();
        let mut parts = Vec::new();
        for (call, reply) in visit.commands.iter().zip(replies) {
            let opened = RefCell::new(Vec::new());
            let answer = answer(call, now, |key| {
                opened.borrow_mut().push(key.to_vec());
                found(&self.database, visit.now, key)
            });
            check(visit.place, call, reply, &answer)
                .map_err(|due| format!("{}: the reply is {reply:?}, and has to be {due}", typed(call)))?;
            let expired = self.expire(visit.now, &opened.into_inner());
            parts.push([expired, self.apply(call, &answer)].concat());
            answered.push(answer);
        }
        let written = parts.concat().len();
        if visit.place == Place::Watched && (replies.last() == Some(&Value::Nil)) != (written > 0) {
            return Err(format!("{written} keys were written, but EXEC after WATCH: {:?}", replies.last()));
        }
        if visit.place == Place::Transaction {
            parts = vec![parts.concat()];
        }
        self.effects.extend(parts.into_iter().flat_map(at_once));
        Ok(answered)
    }

    /// Makes the changes of a call. Returns what replicas are sent.
    fn apply(&mut self, call: &Words, answer: &Result<Answer, String>) -> Vec<Words> {
        let mut effects = Vec::new();
        let Ok(Answer { told, changes, .. }) = answer else { return effects };
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
                    let held = Held { value: Content::Text(Text(state(tats))), expires_at: expires_at as i64 };
                    self.database.insert(key.clone(), held);
                    vec!["SET".into(), key, state(tats), "PXAT".into(), expires_at.to_string().into()]
                }
            };
            effects.push(effect);
            self.count(CHANGES);
        }
        effects
    }

    fn count(&mut self, field: &str) {
        *self.counts.entry(field.into()).or_default() += 1;
    }

    fn compare(&self, due: &Self) -> Result<(), String> {
        let both = [self, due];
        let typed = |effects: &[Words]| effects.iter().map(|effect| typed(effect)).collect::<Vec<_>>();
        let [seen, due] = if self.database != due.database {
            both.map(|seen| shown(&seen.database))
        } else if self.effects != due.effects {
            both.map(|seen| format!("replicated: {:?}", typed(&seen.effects)))
        } else if self.counts != due.counts {
            let differ = difference(&self.counts, &due.counts);
            return Err(format!("after the last visit INFO has, and has to have: {differ:?}"));
        } else {
            return Ok(());
        };
        Err(format!("after the last visit there is\n  {seen}\nand has to be\n  {due}"))
    }
}

/// Returns the keys and their values as text.
pub fn shown(database: &Database) -> String {
    format!("{:?}", database.iter().map(|(key, held)| (Text(key.clone()), held)).collect::<Vec<_>>())
}

/// Returns the effects of one command or transaction as they are sent: several are a transaction.
fn at_once(mut effects: Vec<Words>) -> Vec<Words> {
    if effects.len() > 1 && !is_redis_6_2() {
        effects.insert(0, words(&["MULTI"]));
        effects.push(words(&["EXEC"]));
    }
    effects
}

impl Held {
    /// Returns whether the key still exists: a server keeps it until the end of the millisecond in which it expires.
    fn is_there(&self, now: i64) -> bool {
        self.expires_at < 0 || self.expires_at >= now / MILLISECOND as i64
    }
}

/// Returns whether a call is refused for the number of its arguments.
fn is_arity(call: &Words, answer: &Result<Answer, String>) -> bool {
    answer.as_ref().is_err_and(|error| *error == arity(Command::of(call).name))
}

/// Compares a reply with the right answer. Returns the answer as text if they differ.
pub fn check(place: Place, call: &Words, reply: &Value, answer: &Result<Answer, String>) -> Result<(), String> {
    let (right, due) = match answer {
        Ok(answer) => {
            let due = if place == Place::Lua { in_lua(&answer.reply) } else { answer.reply.clone() };
            (*reply == due, format!("{due:?}"))
        }
        Err(due) => {
            let error = reply.clone().extract_error().map_or_else(|error| error_text(&error), |_| String::new());
            // Redis 6.2 names the command in the caller's spelling, and a script gets another text for this error.
            let arity = is_arity(call, answer) && error.to_lowercase().starts_with("err wrong number of arg");
            (error == *due || arity, due.clone())
        }
    };
    if right { Ok(()) } else { Err(due) }
}

/// Returns the reply as a script sees it: a number in Lua has 53 bits.
fn in_lua(reply: &Value) -> Value {
    match reply {
        Value::Int(integer) => Value::Int(*integer as f64 as i64),
        Value::Array(items) => Value::Array(items.iter().map(in_lua).collect()),
        other => other.clone(),
    }
}

/// Returns the moments that a call at `now` finds in this key, or the error for its value.
pub fn found(database: &Database, now: i64, key: &[u8]) -> Found {
    let Some(held) = database.get(key).filter(|held| held.is_there(now)) else { return Ok(Vec::new()) };
    let Content::Text(Text(text)) = &held.value else { return Err(WRONG_TYPE) };
    let tats = text.chunks(19).map(|tat| {
        let tat = std::str::from_utf8(tat).ok().filter(|tat| tat.len() == 19 && !tat.starts_with(['+', '-']));
        tat.and_then(|tat| tat.parse::<i64>().ok()).map(i128::from)
    });
    let tats: Option<Vec<i128>> = tats.collect();
    tats.filter(|tats| (1..=MOST_QUOTAS).contains(&tats.len())).ok_or(NOT_A_STATE)
}
