//! A look: the key and the server at one moment, and what may have changed from one to the next.

use redis::Value;

use super::visit::{Role, Text};
use crate::support::expected::{Found, MILLISECOND, NOT_A_STATE, SECOND, WRONG_TYPE, expiry};
use crate::support::hostile::Bytes;
use crate::support::model::Change;

pub const COMMANDS_PER_LOOK: usize = 7;

/// The key and the server at one moment.
#[derive(Debug)]
pub struct Look {
    /// None if there is no key, or if it is not a string.
    pub value: Option<Text>,
    pub dump: Option<Text>,
    /// In milliseconds since the epoch; below 0 if it does not expire.
    pub expires_at: i128,
    /// By PTTL, so not exactly.
    pub time_left: bool,
    /// Of the database, when the look began and when it ended.
    pub keys: (i64, i64),
    pub time: i128,
    pub dirty: i64,
    pub replicated: i64,
}

impl Look {
    pub fn read(replies: &[(Role, Value)], time_left: bool) -> Option<Self> {
        let bytes = |index: usize| match &replies.get(index)?.1 {
            Value::BulkString(bytes) => Some(bytes.clone()),
            _ => None,
        };
        let integer = |index: usize| match replies.get(index)?.1 {
            Value::Int(integer) => Some(integer),
            _ => None,
        };
        let (seconds, microseconds): (i128, i128) = redis::from_redis_value_ref(&replies.get(4)?.1).ok()?;
        let time = seconds * SECOND + microseconds * 1000;
        let info = String::from_utf8(bytes(5)?).ok()?;
        let field = |name: &str| -> Option<i64> { info.lines().find_map(|line| line.strip_prefix(name))?.parse().ok() };
        let expiry = i128::from(integer(2)?);
        // A key that expires during the look is seen as gone.
        let gone = expiry == -2;
        Some(Self {
            value: bytes(0).filter(|_| !gone).map(Text),
            dump: bytes(1).filter(|_| !gone).map(Text),
            expires_at: if expiry >= 0 && time_left { expiry + time / MILLISECOND } else { expiry },
            time_left,
            keys: (integer(3)?, integer(6)?),
            time,
            dirty: field("rdb_changes_since_last_save:")?,
            replicated: field("aof_current_size:")? + field("aof_buffer_length:")?,
        })
    }

    /// Whether its key may have expired by then.
    pub fn expired_by(&self, time: i128) -> bool {
        self.expires_at >= 0 && (self.expires_at - 2 - self.slack()) * MILLISECOND <= time
    }

    pub fn expires_at(&self, milliseconds: i128) -> bool {
        (self.expires_at < 0) == (milliseconds < 0) && (self.expires_at - milliseconds).abs() <= self.slack()
    }

    /// The time left is told a little earlier than the time.
    fn slack(&self) -> i128 {
        if self.time_left { 1000 } else { 0 }
    }

    pub fn found(&self) -> Found {
        match (&self.value, &self.dump) {
            (Some(value), _) => std::str::from_utf8(&value.0)
                .ok()
                .filter(|text| text.len() == 19 && text.bytes().all(|byte| byte.is_ascii_digit()))
                .and_then(|text| text.parse::<i64>().ok())
                .map(|tat| Some(tat.into()))
                .ok_or(NOT_A_STATE),
            (None, Some(_)) => Err(WRONG_TYPE),
            (None, None) => Ok(None),
        }
    }
}

/// What came of a visit.
pub struct Seen<'a> {
    pub looks: Vec<Look>,
    pub replies: Vec<&'a Value>,
    pub exec: Option<&'a Value>,
}

impl<'a> Seen<'a> {
    pub fn read(answers: &'a [(Role, Value)], time_left: bool) -> Result<Self, String> {
        let (mut looks, mut replies, mut exec) = (Vec::new(), Vec::new(), None);
        let mut rest = answers;
        while let [(role, reply), ..] = rest {
            let used = if *role == Role::Look { COMMANDS_PER_LOOK } else { 1 };
            match role {
                Role::Look => {
                    let look = Look::read(rest, time_left);
                    looks.push(look.ok_or_else(|| format!("{:?}", &rest[..COMMANDS_PER_LOOK]))?);
                }
                Role::Call => replies.push(reply),
                Role::Exec => exec = Some(reply),
                Role::Other | Role::Multi => {}
            }
            rest = &rest[used..];
        }
        Ok(Self { looks, replies, exec })
    }
}

/// Whether the key is the same as before, or has just expired.
pub fn unchanged(before: &Look, after: &Look) -> bool {
    let same = before.value == after.value && before.dump == after.dump && before.expires_at(after.expires_at);
    same || (after.dump.is_none() && before.expired_by(after.time))
}

pub fn replicated_bytes(key: &[u8], change: Change) -> i64 {
    let mut effect = redis::Cmd::new();
    match change {
        Change::Nothing => return 0,
        Change::Store(tat) => {
            effect.arg("SET").arg(key).arg(format!("{tat:019}")).arg("PXAT").arg(expiry(tat).to_string())
        }
        Change::Delete => effect.arg("DEL").arg(key),
    };
    effect.get_packed_command().len() as i64
}

/// What MULTI and EXEC take.
pub const AROUND: i64 = "*1\r\n$5\r\nMULTI\r\n*1\r\n$4\r\nEXEC\r\n".len() as i64;

/// Some servers put a transaction of a single write, or a script, between MULTI and EXEC, others do not.
pub fn is_replicated(bytes: i64, expected: i64) -> bool {
    bytes == expected || (expected > 0 && bytes == expected + AROUND)
}

/// What is wrong if so many bytes were sent, and the effect of the call has another number of them.
pub fn wrongly_replicated(call: &[Bytes], replicated: i64, effect: i64) -> String {
    let mut whole = redis::Cmd::new();
    whole.arg(call);
    let call = whole.get_packed_command().len() as i64;
    if replicated == 0 {
        format!("replicas and the AOF were sent nothing, instead of the effect of the call, {effect} bytes")
    } else if is_replicated(replicated, call) {
        "replicas and the AOF were sent the call itself, not its effect".into()
    } else {
        format!("replicas and the AOF were sent {replicated} bytes, but the effect of the call has {effect}")
    }
}

/// Integers of which each may have grown or shrunk between two times.
pub fn all_between(reply: &[i128; 5], first: [i128; 5], last: [i128; 5]) -> Result<(), String> {
    let mut bounds = reply.iter().zip(first.into_iter().zip(last));
    match bounds.all(|(integer, (first, last))| (first.min(last)..=first.max(last)).contains(integer)) {
        true => Ok(()),
        false => Err(format!("the reply is {reply:?}, the model expects {first:?} to {last:?}")),
    }
}
