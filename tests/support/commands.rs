//! The commands of src/lib.rs, stated a second time.

/// A command, as the pages describe it.
pub struct Command {
    pub name: &'static str,
    /// The version of the module that added the command.
    pub since: &'static str,
    pub access: Access,
    /// The arguments, as docs/commands.md writes them: brackets mark the optional ones, dots the repeated ones.
    pub syntax: &'static str,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Access {
    Reads,
    Writes,
}
use Access::{Reads, Writes};

pub const COMMANDS: [Command; 10] = [
    command("cl.throttle", "1.0.0", Writes, OPTIONAL),
    command("cl.pthrottle", "1.0.0", Writes, OPTIONAL),
    command("cl.charge", "1.0.0", Writes, REQUIRED),
    command("cl.pcharge", "1.0.0", Writes, REQUIRED),
    command("cl.take", "1.0.0", Writes, REQUIRED),
    command("cl.ptake", "1.0.0", Writes, REQUIRED),
    command("cl.look", "1.0.0", Reads, OPTIONAL),
    command("cl.plook", "1.0.0", Reads, OPTIONAL),
    command("cl.mthrottle", "1.0.0", Writes, SEVERAL),
    command("cl.mpthrottle", "1.0.0", Writes, SEVERAL),
];
/// A quota and an optional quantity.
const OPTIONAL: &str = "key max_burst count period [quantity [max_burst count period ...]]";
/// A quota and a required quantity.
const REQUIRED: &str = "key max_burst count period quantity [max_burst count period ...]";
/// Several limiters, each with its quota and quantity.
const SEVERAL: &str = "key max_burst count period quantity [key max_burst count period quantity ...]";

const fn command(name: &'static str, since: &'static str, access: Access, syntax: &'static str) -> Command {
    Command { name, since, access, syntax }
}

impl Command {
    /// Returns the required arguments.
    pub fn required(&self) -> impl Iterator<Item = &'static str> {
        self.syntax.split('[').next().unwrap().split_whitespace()
    }

    /// Returns whether a call may have several keys.
    pub fn takes_several_keys(&self) -> bool {
        self.syntax.matches("key").count() > 1
    }

    /// Returns the same command in seconds, whose name lacks the P, if this one counts milliseconds.
    pub fn in_seconds(&self) -> Option<&'static Command> {
        let in_seconds = self.name.replacen('p', "", 1);
        COMMANDS.iter().find(|command| command.name == in_seconds && command.name != self.name)
    }

    /// Returns a call on this key without the optional arguments. On a new key it is allowed.
    pub fn call(&self, key: &str) -> String {
        self.call_with(key, self.required())
    }

    /// Returns the shortest call on this key and, if the command takes several quotas, a call with two.
    pub fn calls(&self, key: &str) -> Vec<String> {
        let words = self.syntax.split(['[', ']', ' ']).filter(|word| !["", "..."].contains(word));
        let with_all = (!self.takes_several_keys()).then(|| self.call_with(key, words));
        let mut calls = vec![self.call(key)];
        calls.extend(with_all.filter(|call| *call != calls[0]));
        calls
    }

    fn call_with(&self, key: &str, arguments: impl Iterator<Item = &'static str>) -> String {
        let arguments = arguments.map(|argument| match argument {
            "key" => key,
            "max_burst" => "4",
            "period" => "60",
            _ => "1",
        });
        [self.name].into_iter().chain(arguments).collect::<Vec<_>>().join(" ")
    }
}
