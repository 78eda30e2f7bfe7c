//! Input of a malicious client: calls with any arguments, and any other change to a key.

use crate::support::commands::{COMMANDS, Command, MILLISECOND, SECOND};
use crate::support::expected::{MOST_QUOTAS, NAMES, least};
use crate::support::model::Way;
use crate::support::random::Random;

pub type Bytes = Vec<u8>;
/// A command, word by word.
pub type Words = Vec<Bytes>;

/// Strings that the server rejects as 64-bit integers; some are near misses.
pub const NOT_INTEGERS: [&[u8]; 15] = [
    b"",
    b"x",
    b"+1",
    b" 1",
    b"1 ",
    b"1.0",
    b"1e3",
    b"0x1",
    b"01",
    b"-0",
    b"1\0",
    b"\xff",
    b"9223372036854775808",
    b"-9223372036854775809",
    "\u{661}".as_bytes(),
];

/// Every key that the client writes to.
pub const KEYS: [&[u8]; 8] = [b"", b"a", b"b", b"\0", b"a\0b", b"\xff\xfe", b"{tag}c", &[b'k'; 300]];

/// A client whose seed decides what it sends.
pub struct Hostile {
    pub random: Random,
    /// The server's clock, in nanoseconds since the epoch.
    pub now: i64,
}

impl Hostile {
    pub fn key(&mut self) -> Bytes {
        self.random.pick(&KEYS).to_vec()
    }

    pub fn call(&mut self, key: &[u8]) -> Words {
        let name = COMMANDS[self.random.below(COMMANDS.len())].name;
        let mut call = vec![if self.random.one_in(2) { name.into() } else { name.to_uppercase().into() }];
        let command = Command::of(&call);
        let way = command.way;
        let usual = !self.random.one_in(4);
        call.extend(self.group(key, way, usual));
        if command.takes_several_keys() {
            // One bad group turns the whole reply into an error, which tells nothing of the other groups.
            while self.random.one_in(2) {
                let key = self.key();
                call.extend(self.group(&key, way, usual));
            }
            if self.random.one_in(8) {
                // The last group lacks some of its integers.
                call.truncate(call.len() - 1 - self.random.below(4));
            }
        } else if self.random.one_in(if command.has_optional_quantity() { 3 } else { 12 }) {
            call.pop();
        } else {
            let further = match self.random.below(10) {
                0..5 => 0,
                5..9 => 1 + self.random.below(3),
                // The most that a call may have, and one too many.
                _ => self.random.pick(&[MOST_QUOTAS - 1, MOST_QUOTAS]),
            };
            for _ in 0..further {
                let quota = self.group(key, way, usual);
                call.extend_from_slice(&quota[1..4]);
            }
        }
        if self.random.one_in(16) {
            call.resize(1 + self.random.below(10), b"1".to_vec());
        }
        call
    }

    /// Returns a key and four integers.
    fn group(&mut self, key: &[u8], way: Way, usual: bool) -> Words {
        let mut group = vec![key.to_vec()];
        for name in NAMES {
            let integer = match usual {
                true => {
                    if self.random.one_in(12) {
                        group.push(10_u64.pow(self.random.below(12) as u32).to_string().into());
                        continue;
                    }
                    let most = self.random.pick(if name == "quantity" { &[2, 4, 30] } else { &[3, 30, 3000] });
                    let integer = least(name, way).unwrap_or(0) as i64 + self.random.of_any_length() % most;
                    if least(name, way).is_none() && self.random.one_in(4) { -integer } else { integer }
                }
                false if self.random.one_in(4) => self.integer(),
                false => self.integer().max(least(name, way).map_or(i64::MIN, |least| least as i64)),
            };
            group.push(integer.to_string().into());
        }
        let unit = self.random.pick(&[SECOND, MILLISECOND]) as i64;
        let near = |random: &mut Random, edge: i64| edge + random.pick(&[-1, 0, 1]);
        let of_an_edge = match self.random.below(48) {
            // Rates of about a token per nanosecond.
            0 => {
                let period = self.random.below(9) as i64 + 1;
                Some([self.random.below(30) as i64, near(&mut self.random, period * unit), period, 1])
            }
            // Limiters that are full again about when the clock ends, without a debt and with one.
            1 => Some([0, 1, near(&mut self.random, (i64::MAX - self.now) / unit), 1]),
            2 => Some([1, 1, 1, near(&mut self.random, (i64::MAX - self.now) / unit)]),
            _ => None,
        };
        if let Some(integers) = of_an_edge {
            group.splice(1.., integers.map(|integer| integer.to_string().into()));
        }
        if self.random.one_in(if usual { 16 } else { 4 }) {
            let position = 1 + self.random.below(4);
            group[position] = match self.random.below(3) {
                0 => (-self.random.of_any_length()).to_string().into(),
                1 => b"0".to_vec(),
                _ => self.junk(),
            };
        }
        group
    }

    fn integer(&mut self) -> i64 {
        let edges = [
            0,
            1 << 31,
            1 << 32,
            1 << 53,
            1_000_000_000,
            // The seconds from now to the last moment that fits.
            (i64::MAX - self.now) / SECOND as i64,
            i64::MAX / SECOND as i64,
            i64::MAX,
            i64::MIN,
        ];
        match self.random.below(8) {
            0..3 => self.random.below(20) as i64,
            3..6 => self.random.of_any_length(),
            6 => -self.random.of_any_length(),
            _ => {
                let offset = self.random.below(5) as i64 - 2;
                self.random.pick(&edges).saturating_add(offset)
            }
        }
    }

    /// Returns bytes that are seldom an integer.
    fn junk(&mut self) -> Bytes {
        match self.random.below(60) {
            0 => vec![b'1'; 10_000],
            1..10 => (0..self.random.below(30)).map(|_| self.random.bits() as u8).collect(),
            _ => self.random.pick(&NOT_INTEGERS).to_vec(),
        }
    }

    /// Returns the content of a string: TATs near or far, before or after now, other integers, other bytes.
    fn value(&mut self) -> Bytes {
        let far = self.random.of_any_length();
        let tat = match self.random.below(8) {
            0..4 => self.now.saturating_add(far),
            4 => self.now.saturating_sub(far),
            5 => self.integer(),
            _ => return self.junk(),
        };
        match self.random.below(7) {
            0 => format!("{tat:019}").into(),
            1 => format!("0{tat}").into(),
            2 => (0..1 + self.random.below(200)).map(|_| b'0' + self.random.below(10) as u8).collect(),
            3..5 => {
                // The state of 2 to 9 quotas, sometimes cut short.
                let more = 1 + self.random.below(8);
                let mut text = format!("{tat:019}").into_bytes();
                text.extend((0..more).flat_map(|_| {
                    format!("{:019}", self.now.saturating_add(self.random.of_any_length())).into_bytes()
                }));
                text.truncate(if self.random.one_in(4) { self.random.below(text.len()) } else { text.len() });
                text
            }
            _ => tat.to_string().into(),
        }
    }

    /// Returns another client's command that changes the key.
    pub fn change(&mut self, key: &[u8]) -> Words {
        let value = self.value();
        let other = self.key();
        let small = self.random.below(3000).to_string().into_bytes();
        let integer = self.integer().to_string().into_bytes();
        let with = |name: &str, words: &[&[u8]]| -> Words {
            let words = [name.as_bytes(), key].into_iter().chain(words.iter().copied());
            words.map(<[u8]>::to_vec).collect()
        };
        match self.random.below(29) {
            0..8 => with("SET", &[&value]),
            8 => with("SET", &[&value, b"PX", &small]),
            9 => with("SET", &[&value, b"KEEPTTL"]),
            10 => with("INCR", &[]),
            11 => with("INCRBYFLOAT", &[b"0.5"]),
            12 => with("APPEND", &[self.random.pick(&["0", "7", "x", ""]).as_bytes()]),
            13 => with("SETRANGE", &[&small, b"1"]),
            // SETBIT on an empty string would end a Redis that checks its INFO keysizes, as 8.10.2 does.
            14 => with("SETRANGE", &[&small, b"\x80"]),
            15 => with("PFADD", &[&value]),
            16 => with("EXPIRE", &[&integer]),
            17 => with("PEXPIRE", &[&small]),
            18 => with("PEXPIRE", &[self.random.pick(&["1", "0", "-1"]).as_bytes()]),
            19 => with("PERSIST", &[]),
            20 => with("RENAME", &[&other]),
            21 => with("COPY", &[&other, b"REPLACE"]),
            22 => with("DEL", &[]),
            23 => words(&[self.random.pick(&["FLUSHALL", "FLUSHDB", "PING", "DBSIZE"])]),
            // Every type of value.
            24 => with("RPUSH", &[&value]),
            25 => with("HSET", &[b"field", &value]),
            26 => with("SADD", &[&value]),
            27 => with("ZADD", &[&small, &value]),
            _ => with("XADD", &[b"*", b"field", &value]),
        }
    }
}

/// Formats a command as a user types it into redis-cli, and shortens its longest words.
pub fn typed(command: &[Bytes]) -> String {
    let words = command.iter().map(|word| {
        let shown = &word[..word.len().min(100)];
        let rest = if shown.len() < word.len() { "…" } else { "" };
        let plain = !shown.is_empty() && shown.iter().all(|byte| byte.is_ascii_graphic() && !b"\"\\'".contains(byte));
        let quote = if plain { "" } else { "\"" };
        format!("{quote}{}{quote}{rest}", shown.escape_ascii())
    });
    words.collect::<Vec<_>>().join(" ")
}

pub fn words(words: &[&str]) -> Words {
    words.iter().map(|&word| word.into()).collect()
}
