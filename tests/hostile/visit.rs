//! A visit: the commands that one client sends at one moment.

use super::client::{KEYS, Words, words};

pub struct Visit {
    /// The moment at which the server's clock stands during the visit.
    pub now: i64,
    pub place: Place,
    pub commands: Vec<Words>,
}

/// The way in which the commands of a visit are sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Place {
    /// Commands of another client, which change the keys.
    Other,
    /// Calls between WATCH and an empty transaction, which shows whether they touched a key.
    Plain,
    /// The same, but each call is made by a script.
    Lua,
    Transaction,
}

impl Visit {
    /// Returns all commands in the form in which they are sent.
    pub fn sent(&self) -> Vec<Words> {
        let each = self.commands.iter().map(|command| match self.place {
            Place::Lua => [&words(&["EVAL", "return redis.pcall(unpack(ARGV))", "0"]), command.as_slice()].concat(),
            _ => command.clone(),
        });
        let [before, after] = self.around();
        before.into_iter().chain(each).chain(after).collect()
    }

    /// Returns what is sent before the visit's own commands, and after them.
    pub fn around(&self) -> [Vec<Words>; 2] {
        let with_keys = |name| [words(&[name]), KEYS.map(<[u8]>::to_vec).to_vec()].concat();
        let [multi, exec] = ["MULTI", "EXEC"].map(|name| words(&[name]));
        match self.place {
            Place::Other => [vec![], vec![]],
            Place::Transaction => [vec![multi], vec![exec]],
            // EXISTS deletes the keys that have expired, before WATCH could see them go.
            Place::Plain | Place::Lua => [vec![with_keys("EXISTS"), with_keys("WATCH")], vec![multi, exec]],
        }
    }
}
