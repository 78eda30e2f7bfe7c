//! The input of a malicious client: calls with any arguments, other commands that change keys, and batches of both.

use crate::support::commands::{COMMANDS, Command};
use crate::support::expected::{MAX_QUOTAS, NAMES, least};
use crate::support::model::Taking;
use crate::support::random::Random;

pub type Bytes = Vec<u8>;
/// The words of a command, beginning with its name.
pub type Words = Vec<Bytes>;

/// All keys that the client uses.
pub const KEYS: [&[u8]; 6] = [b"", b"a", b"b", b"\0", b"a\0b", b"\xff\xfe"];

/// Odd arguments: the smallest and the largest 64-bit integer, and words that the server does not accept as integers.
const ODD: [&[u8]; 13] = [
    b"",
    b"x",
    b"+1",
    b" 1",
    b"1.0",
    b"01",
    b"-0",
    b"1\0",
    b"\xff",
    b"-9223372036854775809",
    b"-9223372036854775808",
    b"9223372036854775807",
    b"9223372036854775808",
];

/// A client that sends random commands. The seed of `random` decides which.
pub struct Hostile {
    pub random: Random,
    /// The time on the server's clock, in nanoseconds since the epoch.
    pub now: i64,
}

impl Hostile {
    pub fn call(&mut self, key: &[u8]) -> Words {
        let name = COMMANDS[self.random.below(COMMANDS.len())].name;
        let mut call = vec![if self.random.one_in(2) { name.into() } else { name.to_uppercase().into() }];
        let command = Command::of(&call);
        call.extend(self.group(key, command));
        if command.takes_several_keys() {
            // Add only a few groups: one bad group turns the whole reply into an error, and the others are not tested.
            while self.random.one_in(2) {
                let key = self.random.pick(&KEYS);
                call.extend(self.group(key, command));
            }
        } else if command.has_optional_quantity() && self.random.one_in(4) {
            call.pop();
        } else if self.random.one_in(2) {
            // One quota in four repeats the first one: of two equal quotas, the reply must name the first.
            let rest = self.random.pick(&[1, 1, 2, 3, MAX_QUOTAS - 1, MAX_QUOTAS]);
            for _ in 0..rest {
                let group = if self.random.one_in(4) { call[1..].to_vec() } else { self.group(key, command) };
                call.extend_from_slice(&group[1..4]);
            }
        }
        if self.random.one_in(8) {
            // Leave out one to four words at the end.
            call.truncate(call.len() - 1 - self.random.below(4));
        }
        call
    }

    /// Returns the arguments for one limiter: a key and four integers.
    fn group(&mut self, key: &[u8], command: &Command) -> Words {
        let unit = command.unit as i64;
        let near = self.random.pick(&[-1, 0, 1]);
        let to_the_end = (i64::MAX - self.now) / unit + near;
        let integers = match self.random.below(24) {
            // A rate of about one token per nanosecond.
            0 => [9, 2 * unit + near, 2, 1],
            // Limiters, without and with a debt, that become full close to the last moment that a key can hold.
            1 => [0, 1, to_the_end, 1],
            2 => [1, 1, 1, to_the_end],
            _ => NAMES.map(|name| self.integer(name, command.taking)),
        };
        let mut group = vec![key.to_vec()];
        group.extend(integers.map(|integer| integer.to_string().into()));
        while self.random.one_in(4) {
            let index = 1 + self.random.below(4);
            group[index] = match self.random.below(3) {
                0 => self.random.of_any_length().to_string().into(),
                1 => (-self.random.of_any_length()).to_string().into(),
                _ => self.random.pick(&ODD).to_vec(),
            };
        }
        group
    }

    /// Returns a valid argument. Most are small, so that limiters run out of tokens.
    fn integer(&mut self, name: &str, taking: Taking) -> i64 {
        let most = self.random.pick(&[3, 30, 3_000]);
        match least(name, taking) {
            _ if self.random.one_in(12) => 10_i64.pow(self.random.below(12) as u32),
            Some(least) => least as i64 + self.random.below(most) as i64,
            // A third of the quantities are refunds.
            None => self.random.below(most) as i64 - most as i64 / 3,
        }
    }

    /// Returns a string value: the TATs of 1 to 9 quotas, in the near or far past or future. Some values are corrupt.
    fn value(&mut self) -> Bytes {
        let quotas = self.random.pick(&[1, 1, 1, 2, 3, MAX_QUOTAS, MAX_QUOTAS + 1]);
        let tats = (0..quotas).map(|_| {
            let far = self.random.of_any_length();
            format!("{:019}", self.now.saturating_add(if self.random.one_in(4) { -far } else { far }))
        });
        let mut text = tats.collect::<String>().into_bytes();
        let index = self.random.below(text.len());
        match self.random.below(12) {
            0 => text.truncate(index),
            1 => text[index] = self.random.below(256) as u8,
            // A number that does not fit in 63 bits.
            2 => text[0] = b'9',
            3 => text.clear(),
            _ => (),
        }
        text
    }

    /// Returns another client's command that changes the key.
    pub fn change(&mut self, key: &[u8]) -> Words {
        let (value, other) = (self.value(), self.random.pick(&KEYS));
        let milliseconds = self.random.below(3_000).to_string().into_bytes();
        let (name, words): (_, &[&[u8]]) = match self.random.below(16) {
            0..7 => ("SET", &[&value]),
            7 => ("SET", &[&value, b"PX", &milliseconds]),
            8 => ("APPEND", &[b"7"]),
            9 => ("PEXPIRE", &[&milliseconds]),
            10 => ("PERSIST", &[]),
            11 => ("RENAME", &[other]),
            12 => ("DEL", &[]),
            13..15 => ("RPUSH", &[&value]),
            _ => ("HSET", &[b"field", &value]),
        };
        [name.as_bytes(), key].iter().chain(words).map(|word| word.to_vec()).collect()
    }
}

/// The commands that one client sends at one moment.
pub struct Batch {
    /// The time on the server's clock, which stands still during the batch.
    pub now: i64,
    pub via: Via,
    pub commands: Vec<Words>,
}

/// How the commands of a batch are sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Via {
    /// As commands of another client, which change the keys.
    Other,
    /// As calls between WATCH and an empty transaction, whose reply shows whether the calls touched a key.
    Plain,
    /// Like `Plain`, but with each call in a script.
    Lua,
    Transaction,
}

impl Batch {
    /// Returns all commands that are sent for the batch, in order.
    pub fn sent(&self) -> Vec<Words> {
        let each = self.commands.iter().map(|command| match self.via {
            Via::Lua => [&words(&["EVAL", "return redis.pcall(unpack(ARGV))", "0"]), command.as_slice()].concat(),
            _ => command.clone(),
        });
        let [before, after] = self.around();
        before.into_iter().chain(each).chain(after).collect()
    }

    /// Returns the commands that are sent before the batch's own commands, and those that are sent after them.
    pub fn around(&self) -> [Vec<Words>; 2] {
        let with_keys = |name| [words(&[name]), KEYS.map(<[u8]>::to_vec).to_vec()].concat();
        let [multi, exec] = ["MULTI", "EXEC"].map(|name| words(&[name]));
        match self.via {
            Via::Other => [vec![], vec![]],
            Via::Transaction => [vec![multi], vec![exec]],
            // First make EXISTS delete the expired keys. Otherwise, WATCH would notice their deletion.
            Via::Plain | Via::Lua => [vec![with_keys("EXISTS"), with_keys("WATCH")], vec![multi, exec]],
        }
    }
}

/// Puts the words of a command in quotes, and escapes non-printable bytes.
pub fn typed<'a>(command: impl IntoIterator<Item = &'a Bytes>) -> String {
    command.into_iter().map(|word| format!("\"{}\"", word.escape_ascii())).collect::<Vec<_>>().join(" ")
}

pub fn words(words: &[&str]) -> Words {
    words.iter().map(|&word| word.into()).collect()
}
