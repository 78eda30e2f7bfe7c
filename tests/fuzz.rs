//! Hostile calls, and everything that clients do to the keys between them: the server stays up, and every reply, every
//! key, its expiry, the dirty counter and the replicated bytes are what a second statement of the rule says.
//!
//! `FUZZ_SEED` and `FUZZ_CALLS` choose another run than the one of `cargo test`.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use redis::{Connection, RedisResult, Value};

use crate::support::expected::{
    Found, MILLISECOND, NAMES, NOT_A_STATE, SECOND, TOO_FAST, TOO_LARGE, WRONG_TYPE, arity, below_least, error_text,
    expected, expected_of_groups, in_group, in_units, integers, limited_and_groups, name_and_unit, not_an_integer,
    same_key,
};
use crate::support::hostile::{Bytes, Command, Hostile, words};
use crate::support::model::{Change, Told};
use crate::support::random::Random;
use crate::support::{Server, run, setting};

const COMMANDS_PER_LOOK: usize = 7;
/// What is sent before the first reply is read.
const VISITS_PER_PIPELINE: usize = 32;

#[test]
fn hostile_calls_get_the_right_answer_and_change_nothing_else() {
    let fuzz = run_visits(1, Fuzz::visit, Fuzz::check);

    let mut expected = vec![
        ALLOWED.to_string(),
        EMPTIED.to_string(),
        LOOKED.to_string(),
        LIMITED.to_string(),
        NEVER.to_string(),
        arity("cl.throttle"),
        arity("cl.mthrottle"),
        in_group(1, WRONG_TYPE.into()),
        in_group(2, same_key(1)),
        WRONG_TYPE.to_string(),
        NOT_A_STATE.to_string(),
        TOO_FAST.to_string(),
        TOO_LARGE.to_string(),
    ];
    for name in NAMES {
        expected.push(not_an_integer(name));
        if name != "quantity" {
            expected.push(below_least(name));
        }
    }
    fuzz.has_seen(&expected);
}

#[test]
fn hostile_groups_are_all_or_nothing() {
    let fuzz = run_visits(10, Fuzz::visit_of_several, Fuzz::check_several);

    fuzz.has_seen(&[
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

/// Makes `FUZZ_CALLS` calls, or one of so many of them.
fn run_visits(
    one_of: u64,
    visit: fn(&mut Fuzz) -> Visit,
    check: fn(&mut Fuzz, &Visit, &Seen) -> Result<(), String>,
) -> Fuzz {
    let seed = setting("FUZZ_SEED", 1);
    let calls = setting("FUZZ_CALLS", 200_000) / one_of;

    // The AOF holds what replicas are sent, and INFO tells its length call by call.
    let server = Server::start_with(&[
        "--appendonly",
        "yes",
        "--appendfsync",
        "no",
        "--auto-aof-rewrite-percentage",
        "0",
        "--hz",
        "1",
        // What compresses leaves some bytes to chance, and DUMPs are compared.
        "--rdbcompression",
        "no",
    ]);
    let mut connection = server.connect();
    connection.set_read_timeout(Some(Duration::from_secs(300))).unwrap();
    // The first write also replicates a SELECT.
    run::<()>(&mut connection, "SET first 1").unwrap();
    let mut fuzz = Fuzz {
        client: Hostile { random: Random::new(seed) },
        // Redis 6.2 only tells how long a key still has.
        time_left: run::<Value>(&mut connection, "PEXPIRETIME first").is_err(),
        made: 0,
        outcomes: BTreeMap::new(),
    };
    while fuzz.made < calls {
        let visits: Vec<Visit> = (0..VISITS_PER_PIPELINE).map(|_| visit(&mut fuzz)).collect();
        let packed: Bytes = visits.iter().flat_map(Visit::packed).collect();
        let mut check = || -> RedisResult<()> {
            connection.send_packed_command(&packed)?;
            for visit in &visits {
                let answers = visit.answers(&mut connection)?;
                let seen = Seen::read(&answers, fuzz.time_left);
                if let Err(wrong) = seen.and_then(|seen| check(&mut fuzz, visit, &seen)) {
                    panic!("seed {seed}, after {} calls: {wrong}\n{visit:?}", fuzz.made);
                }
            }
            Ok(())
        };
        check().unwrap_or_else(|error| panic!("seed {seed}: {error}\n{}", server.log()));
    }
    println!("seed {seed}, {} calls: {:#?}", fuzz.made, fuzz.outcomes);
    fuzz
}

const ALLOWED: &str = "allowed and stored";
const EMPTIED: &str = "allowed, and the key deleted";
const LOOKED: &str = "allowed, nothing to store";
const LIMITED: &str = "limited for now";
const NEVER: &str = "limited for ever";
/// Not an outcome of its own: some key expired between the looks, and its DEL was replicated, too.
const BLURRED: &str = "(a key expired meanwhile)";

/// Something is done to a key, and then it is called a few times, with a look before and after each call. Or to several
/// keys, and then there is one call of all of them, with a look at each before and after it.
struct Visit {
    keys: Vec<Bytes>,
    place: Place,
    commands: Vec<(Role, Command)>,
}

/// How the calls of a visit are made.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Place {
    Plain,
    Lua,
    Transaction,
    /// After WATCH, and before a transaction that shows whether the key was touched.
    Watched,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Role {
    /// Its reply says nothing of the module.
    Other,
    /// One of the commands of a look.
    Look,
    Call,
    Multi,
    Exec,
}

/// The key and the server at one moment.
#[derive(Debug)]
struct Look {
    /// None if there is no key, or if it is not a string.
    value: Option<Text>,
    dump: Option<Text>,
    /// In milliseconds since the epoch; below 0 if it does not expire.
    expires_at: i128,
    /// By PTTL, so not exactly.
    time_left: bool,
    /// Of the database, when the look began and when it ended.
    keys: (i64, i64),
    time: i128,
    dirty: i64,
    replicated: i64,
}

/// Bytes that print as such.
#[derive(Clone, PartialEq)]
struct Text(Bytes);

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.0[..self.0.len().min(200)];
        write!(f, "\"{}\"", shown.escape_ascii())
    }
}

impl fmt::Debug for Visit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?}:", self.place)?;
        for (role, command) in &self.commands {
            if *role != Role::Look {
                let words: Vec<Text> = command.iter().cloned().map(Text).collect();
                writeln!(f, "{words:?}")?;
            }
        }
        Ok(())
    }
}

impl Visit {
    fn push(&mut self, role: Role, command: Command) {
        self.commands.push((role, command));
    }

    /// All commands as the server reads them.
    fn packed(&self) -> Bytes {
        let mut packed = Bytes::new();
        for (role, command) in &self.commands {
            let mut whole = redis::Cmd::new();
            if self.place == Place::Lua && *role == Role::Call {
                whole.arg(&["EVAL", "return redis.pcall(unpack(ARGV))", "0"]);
            }
            whole.arg(command);
            whole.write_packed_command(&mut packed);
        }
        packed
    }

    /// The replies, those of a transaction in their places. A transaction that is discarded has none but its error.
    fn answers(&self, connection: &mut Connection) -> RedisResult<Vec<(Role, Value)>> {
        let mut answers = Vec::new();
        let mut queued: Option<Vec<Role>> = None;
        for &(role, _) in &self.commands {
            let reply = connection.recv_response()?;
            match (&mut queued, role, reply) {
                (_, Role::Multi, _) => queued = Some(Vec::new()),
                (Some(roles), Role::Exec, Value::Array(replies)) => {
                    answers.extend(roles.drain(..).zip(replies));
                    queued = None;
                }
                (_, Role::Exec, reply) => {
                    answers.push((Role::Exec, reply));
                    queued = None;
                }
                (Some(roles), role, _) => roles.push(role),
                (None, role, reply) => answers.push((role, reply)),
            }
        }
        Ok(answers)
    }

    fn calls(&self) -> impl Iterator<Item = &Command> {
        self.commands.iter().filter(|(role, _)| *role == Role::Call).map(|(_, command)| command)
    }
}

impl Look {
    fn read(replies: &[(Role, Value)], time_left: bool) -> Option<Self> {
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
}

/// What came of a visit.
struct Seen<'a> {
    looks: Vec<Look>,
    replies: Vec<&'a Value>,
    exec: Option<&'a Value>,
}

impl<'a> Seen<'a> {
    fn read(answers: &'a [(Role, Value)], time_left: bool) -> Result<Self, String> {
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

struct Fuzz {
    client: Hostile,
    /// Expiries are told by PTTL.
    time_left: bool,
    made: u64,
    outcomes: BTreeMap<String, u64>,
}

/// What is sent.
impl Fuzz {
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

    fn visit_of_several(&mut self) -> Visit {
        let mut visit = Visit { keys: Vec::new(), place: Place::Plain, commands: Vec::new() };
        let mut call = words(&["CL.MTHROTTLE"]);
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
                call.extend(self.client.group(&key));
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

    /// At each key of the visit.
    fn look(&self, visit: &mut Visit) {
        let expiry = if self.time_left { "PTTL" } else { "PEXPIRETIME" };
        for key in visit.keys.clone() {
            for name in ["GET", "DUMP", expiry] {
                visit.push(Role::Look, vec![name.into(), key.clone()]);
            }
            visit.push(Role::Look, words(&["DBSIZE"]));
            visit.push(Role::Look, words(&["TIME"]));
            visit.push(Role::Look, words(&["INFO", "persistence"]));
            visit.push(Role::Look, words(&["DBSIZE"]));
        }
    }
}

/// What is found.
impl Fuzz {
    fn check(&mut self, visit: &Visit, seen: &Seen) -> Result<(), String> {
        let Seen { looks, replies, exec } = seen;
        let [.., before_last, last] = looks.as_slice() else {
            return Err("nothing was seen".into());
        };
        let first = &looks[0];
        // A server that knows how many arguments there are to be does not even begin such a transaction.
        if visit.place == Place::Transaction && exec.is_some() {
            let known = visit.calls().any(|call| expected(call, 0, Ok(None)) == Err(arity(&name_and_unit(call).0)));
            return match known && unchanged(first, last) {
                true => Ok(()),
                false => Err(format!("the transaction failed: {exec:?}\n{first:?}\n{last:?}")),
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
                let call: Vec<Text> = call.iter().cloned().map(Text).collect();
                format!("{what}\n{reply:?} to {call:?}\n{before:?}\n{after:?}")
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
            if after.dirty - before.dirty != i64::from(change != Change::Nothing) {
                return Err(wrong("dirty".into()));
            }
            let bytes = replicated_bytes(&visit.keys[0], change);
            let replicated = after.replicated - before.replicated;
            // Redis 6.2 also puts it around a script that has written nothing.
            let nothing = replicated == AROUND && visit.place == Place::Lua && self.time_left;
            if visit.place != Place::Transaction && !nothing && !is_replicated(replicated, bytes) {
                return Err(wrong(format!("{replicated} bytes replicated instead of {bytes}")));
            }
            bytes_of_all += bytes;
        }
        let replicated = last.replicated - first.replicated;
        if visit.place == Place::Transaction && !blurred && !is_replicated(replicated, bytes_of_all) {
            return Err(format!("the transaction replicated {replicated} bytes instead of {bytes_of_all}"));
        }
        let touched = *exec == Some(&Value::Nil);
        if visit.place == Place::Watched && !blurred && touched != (bytes_of_all > 0) {
            return Err(format!("WATCH saw a change: {touched}"));
        }
        Ok(())
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
        let wrong = |what: String| format!("{what}\n{reply:?}\n{before:#?}\n{after:#?}");
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
        let mut stored = Vec::new();
        let outcome = if let Value::ServerError(error) = reply {
            let error = error_text(error);
            if ![&first, &last].contains(&&Err(error.clone())) {
                return Err(wrong(format!("instead of {first:?}")));
            }
            error
        } else {
            let (limited, groups) = limited_and_groups(reply).ok_or_else(|| wrong("shape".into()))?;
            let (first, last) = (first.map_err(&wrong)?, last.map_err(&wrong)?);
            if groups.len() != first.len() {
                return Err(wrong(format!("instead of {first:?}")));
            }
            let [any_first, any_last] = [&first, &last].map(|told| told.iter().any(|told| told.limited));
            // Became allowed in between: either is right.
            if any_first != any_last {
                *self.outcomes.entry(BLURRED.into()).or_default() += 1;
                return Ok(());
            }
            if limited != any_first {
                return Err(wrong(format!("limited: {limited}")));
            }
            for ((group, key), (first, last)) in groups.iter().zip(call[1..].chunks(5)).zip(first.iter().zip(&last)) {
                all_between(group, in_units(*first, SECOND), in_units(*last, SECOND)).map_err(&wrong)?;
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

        let mut bytes = 0;
        for (key, (before, after)) in visit.keys.iter().zip(before.iter().zip(after)) {
            let Some((_, bounds)) = stored.iter().find(|(name, _)| *name == key) else {
                if unchanged(before, after) {
                    continue;
                }
                return Err(wrong(format!("{:?} changed", Text(key.clone()))));
            };
            let Some(bounds) = bounds else {
                if after.dump.is_some() {
                    return Err(wrong(format!("{:?} is still there", Text(key.clone()))));
                }
                bytes += replicated_bytes(key, Change::Delete);
                continue;
            };
            let tat = after.found().ok().flatten().filter(|tat| bounds.contains(tat));
            let tat = tat.ok_or_else(|| wrong(format!("{:?} is not in {bounds:?}", Text(key.clone()))))?;
            if after.value != Some(Text(format!("{tat:019}").into())) || !after.expires_at(expiry(tat)) {
                return Err(wrong(format!("state of {:?}", Text(key.clone()))));
            }
            bytes += replicated_bytes(key, Change::Store(tat));
        }
        if first_after.dirty - last_before.dirty != stored.len() as i64 {
            return Err(wrong("dirty".into()));
        }
        if !is_replicated(first_after.replicated - last_before.replicated, bytes) {
            return Err(wrong(format!("not {bytes} bytes replicated")));
        }
        *self.outcomes.entry(outcome).or_default() += 1;
        Ok(())
    }

    /// A run that seldom gets somewhere shows little about it.
    fn has_seen(&self, outcomes: &[String]) {
        for outcome in outcomes {
            let times = self.outcomes.get(outcome).copied().unwrap_or(0);
            assert!(times * 1000 >= self.made, "{outcome}: only {times} times");
        }
        let blurred = self.outcomes.get(BLURRED).copied().unwrap_or(0);
        assert!(blurred * 4 <= self.made, "{blurred} effects went unseen");
    }
}

impl Look {
    /// Whether its key may have expired by then.
    fn expired_by(&self, time: i128) -> bool {
        self.expires_at >= 0 && (self.expires_at - 2 - self.slack()) * MILLISECOND <= time
    }

    fn expires_at(&self, milliseconds: i128) -> bool {
        (self.expires_at < 0) == (milliseconds < 0) && (self.expires_at - milliseconds).abs() <= self.slack()
    }

    /// The time left is told a little earlier than the time.
    fn slack(&self) -> i128 {
        if self.time_left { 1000 } else { 0 }
    }

    fn found(&self) -> Found {
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

/// Whether the key is the same as before, or has just expired.
fn unchanged(before: &Look, after: &Look) -> bool {
    let same = before.value == after.value && before.dump == after.dump && before.expires_at(after.expires_at);
    same || (after.dump.is_none() && before.expired_by(after.time))
}

fn expiry(tat: i128) -> i128 {
    (tat + MILLISECOND - 1) / MILLISECOND
}

fn replicated_bytes(key: &[u8], change: Change) -> i64 {
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

/// The TAT that has to be stored, if one has.
fn new_tat(told: Told) -> Option<i128> {
    match told.change {
        Change::Store(tat) => Some(tat),
        Change::Nothing | Change::Delete => None,
    }
}

/// What MULTI and EXEC take.
const AROUND: i64 = "*1\r\n$5\r\nMULTI\r\n*1\r\n$4\r\nEXEC\r\n".len() as i64;

/// Some servers put a transaction of a single write, or a script, between MULTI and EXEC, others do not.
fn is_replicated(bytes: i64, expected: i64) -> bool {
    bytes == expected || (expected > 0 && bytes == expected + AROUND)
}

/// Integers of which each may have grown or shrunk between two times.
fn all_between(reply: &[i128; 5], first: [i128; 5], last: [i128; 5]) -> Result<(), String> {
    let mut bounds = reply.iter().zip(first.into_iter().zip(last));
    match bounds.all(|(integer, (first, last))| (first.min(last)..=first.max(last)).contains(integer)) {
        true => Ok(()),
        false => Err(format!("{reply:?} instead of {first:?} to {last:?}")),
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
            let name = name_and_unit(self.call).0;
            if error.to_lowercase() == arity(&name).to_lowercase()
                || (self.in_lua && error.starts_with("ERR Wrong number of args calling "))
            {
                error = arity(&name);
            }
            let known = [earliest, latest].iter().any(|&now| expected(now) == Err(error.clone()));
            return match known && unchanged(self.before, self.after) {
                true => Ok((error, Change::Nothing)),
                false => Err(format!("instead of {:?}", expected(earliest))),
            };
        }
        let reply = integers(self.reply).ok_or("not five integers")?;

        // Between the two times, a call that is limited may become one that is allowed.
        let (first, last) = (expected(earliest)?, expected(latest)?);
        if let (true, Some(wait), false) = (first.limited, first.retry_after, last.limited) {
            match reply[0] {
                1 => latest = earliest + wait - 1,
                _ => earliest += wait,
            }
        }
        // What was stored tells exactly when the call was made, if the funnel was empty, or else that it was not.
        let stored = self.after.value.as_ref();
        let stored = stored.and_then(|value| std::str::from_utf8(&value.0).ok()?.parse::<i128>().ok());
        let tat = found?.unwrap_or(0);
        // What was given back may have emptied it or not: what is stored tells.
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

        let (first, last) = (expected(earliest)?, expected(latest)?);
        // Lua's numbers have 53 bits.
        let shown = |integer: i128| match self.in_lua {
            true => integer as f64 as i128,
            false => integer,
        };
        let unit = name_and_unit(self.call).1;
        let [earliest, latest] = [first, last].map(|told| in_units(told, unit).map(shown));
        all_between(&reply, earliest, latest)?;
        let (Some(first_tat), Some(last_tat)) = (new_tat(first), new_tat(last)) else {
            if first.change == Change::Delete || last.change == Change::Delete {
                return match self.after.dump {
                    None => Ok((EMPTIED.into(), Change::Delete)),
                    Some(_) => Err("the key is still there".into()),
                };
            }
            let outcome = match (first.limited, first.retry_after) {
                (false, _) => LOOKED,
                (true, Some(_)) => LIMITED,
                (true, None) => NEVER,
            };
            return match unchanged(self.before, self.after) {
                true => Ok((outcome.into(), Change::Nothing)),
                false => Err(format!("changed the key, but was {outcome}")),
            };
        };
        match stored {
            Some(tat)
                if (first_tat..=last_tat).contains(&tat)
                    && self.after.value == Some(Text(format!("{tat:019}").into()))
                    && self.after.expires_at(expiry(tat)) =>
            {
                Ok((ALLOWED.into(), Change::Store(tat)))
            }
            // Gone before it could be seen.
            None if self.after.dump.is_none() && expiry(first_tat) * MILLISECOND <= self.times.1 => {
                Ok((ALLOWED.into(), Change::Store(first_tat)))
            }
            _ => Err(format!("{stored:?} is stored instead of {first_tat} to {last_tat}")),
        }
    }
}
