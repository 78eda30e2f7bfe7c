//! A second list of the commands in src/lib.rs, which the tests compare with the first.

use super::clock;
use super::model::Taking;

pub const SECOND: i128 = clock::SECOND as i128;
pub const MILLISECOND: i128 = clock::MILLISECOND as i128;

/// A command, as the documentation describes it.
#[derive(Debug, PartialEq, Eq)]
pub struct Command {
    pub name: &'static str,
    /// The version of the module that added the command.
    pub since: &'static str,
    pub taking: Taking,
    /// The unit of the command's periods, and of the times in its replies, in nanoseconds.
    pub unit: i128,
    /// The arguments, as in docs/commands.md: brackets mark optional arguments, and dots repeated ones.
    pub syntax: &'static str,
}

pub const COMMANDS: [Command; 10] = [
    command("cl.throttle", "1.0.0", Taking::AllOrNone, SECOND, OPTIONAL),
    command("cl.pthrottle", "1.0.0", Taking::AllOrNone, MILLISECOND, OPTIONAL),
    command("cl.charge", "1.0.0", Taking::Always, SECOND, REQUIRED),
    command("cl.pcharge", "1.0.0", Taking::Always, MILLISECOND, REQUIRED),
    command("cl.take", "1.0.0", Taking::UpTo, SECOND, REQUIRED),
    command("cl.ptake", "1.0.0", Taking::UpTo, MILLISECOND, REQUIRED),
    command("cl.look", "1.0.0", Taking::Nothing, SECOND, OPTIONAL),
    command("cl.plook", "1.0.0", Taking::Nothing, MILLISECOND, OPTIONAL),
    command("cl.mthrottle", "1.0.0", Taking::AllOrNone, SECOND, SEVERAL),
    command("cl.mpthrottle", "1.0.0", Taking::AllOrNone, MILLISECOND, SEVERAL),
];
/// The arguments of a command whose quantity is optional.
const OPTIONAL: &str = "key max_burst count period [quantity [max_burst count period ...]]";
/// The arguments of a command whose quantity is required.
const REQUIRED: &str = "key max_burst count period quantity [max_burst count period ...]";
/// The arguments of a command for several limiters, each with a quota and a quantity.
const SEVERAL: &str = "key max_burst count period quantity [key max_burst count period quantity ...]";

const fn command(name: &'static str, since: &'static str, taking: Taking, unit: i128, syntax: &'static str) -> Command {
    Command { name, since, taking, unit, syntax }
}

impl Command {
    /// Returns the command that a call names.
    pub fn of(call: &[Vec<u8>]) -> &'static Self {
        let named = COMMANDS.iter().find(|command| call[0].eq_ignore_ascii_case(command.name.as_bytes()));
        named.unwrap_or_else(|| panic!("tests/support/commands.rs has no row for {}", call[0].escape_ascii()))
    }

    /// Returns whether the command only reads keys.
    pub fn only_reads(&self) -> bool {
        self.taking == Taking::Nothing
    }

    /// Returns the names of the required arguments.
    pub fn required(&self) -> impl Iterator<Item = &'static str> {
        self.syntax.split('[').next().unwrap().split_whitespace()
    }

    /// Returns whether the quantity may be omitted.
    pub fn has_optional_quantity(&self) -> bool {
        self.syntax == OPTIONAL
    }

    /// Returns whether a call may have several keys.
    pub fn takes_several_keys(&self) -> bool {
        self.syntax == SEVERAL
    }

    /// Returns the shortest call on this key, without optional arguments. If the key is new, the call is allowed.
    pub fn call(&self, key: &str) -> String {
        self.calls(key).swap_remove(0)
    }

    /// Returns the shortest call on this key and, if the command takes several quotas, a call with two.
    pub fn calls(&self, key: &str) -> Vec<String> {
        let arguments: &[&str] = match self.syntax {
            OPTIONAL => &["4 1 60", "4 1 60 1 4 1 60"],
            REQUIRED => &["4 1 60 1", "4 1 60 1 4 1 60"],
            SEVERAL => &["4 1 60 1"],
            other => panic!("tests/support/commands.rs has no call for {other}"),
        };
        arguments.iter().map(|arguments| format!("{} {key} {arguments}", self.name)).collect()
    }
}
