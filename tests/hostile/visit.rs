//! A visit is the commands that one client sends at one moment.

use std::fmt;

use super::client::{Bytes, Words, typed, words};
use crate::support::commands::Command;

pub struct Visit {
    /// The moment at which the server's clock stands during the visit.
    pub now: i64,
    pub place: Place,
    pub commands: Vec<Words>,
}

/// The way in which the commands of a visit are sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Place {
    /// Commands other than calls, by which another client changes the keys.
    Other,
    Plain,
    Lua,
    Transaction,
    /// Calls between WATCH and an empty transaction, which shows whether they touched a key.
    Watched,
}

impl Visit {
    /// Returns the bytes of all commands, as the server reads them.
    pub fn packed(&self) -> Bytes {
        let each = self.commands.iter().map(|command| match self.place {
            Place::Lua => [&words(&["EVAL", "return redis.pcall(unpack(ARGV))", "0"]), command.as_slice()].concat(),
            _ => command.clone(),
        });
        let with_keys = |name: &str| {
            let keys = self.commands.iter().flat_map(|call| keys(call)).cloned();
            words(&[name, "any"]).into_iter().chain(keys).collect()
        };
        let (first, last) = match self.place {
            Place::Other | Place::Plain | Place::Lua => (vec![], vec![]),
            Place::Transaction => (vec![words(&["MULTI"])], vec![words(&["EXEC"])]),
            // EXISTS deletes the keys that have expired: they must be gone before WATCH.
            Place::Watched => {
                (vec![with_keys("EXISTS"), with_keys("WATCH")], vec![words(&["MULTI"]), words(&["EXEC"])])
            }
        };
        packed(first.into_iter().chain(each).chain(last))
    }

    /// Returns how many replies come before the first command's reply, and how many after the last command's.
    pub fn around(&self) -> (usize, usize) {
        match self.place {
            Place::Other | Place::Plain | Place::Lua => (0, 0),
            Place::Transaction => (1, 1),
            Place::Watched => (2, 2),
        }
    }
}

impl fmt::Display for Visit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  at {}, {:?}:", self.now, self.place)?;
        self.commands.iter().try_for_each(|command| writeln!(f, "    {}", typed(command)))
    }
}

/// Bytes that are printed in the form that redis-cli reads.
#[derive(Clone, PartialEq)]
pub struct Text(pub Bytes);

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&typed(std::slice::from_ref(&self.0)))
    }
}

/// Returns the keys that a call names.
pub fn keys(call: &[Bytes]) -> impl Iterator<Item = &Bytes> {
    let several = Command::of(call).takes_several_keys();
    call[1..].iter().step_by(if several { 5 } else { call.len() })
}

pub fn packed(commands: impl IntoIterator<Item = Words>) -> Bytes {
    let each = commands.into_iter().map(|command| redis::Cmd::new().arg(command).get_packed_command());
    each.collect::<Vec<_>>().concat()
}
