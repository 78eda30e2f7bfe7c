//! A visit: the commands that go to one or several keys at a time, and their answers.

use std::fmt;

use redis::{Connection, RedisResult, Value};

use crate::support::hostile::{Bytes, Command, typed};

/// Something is done to a key, and then it is called a few times, with a look before and after each call. Or to several
/// keys, and then there is one call of all of them, with a look at each before and after it.
pub struct Visit {
    pub keys: Vec<Bytes>,
    pub place: Place,
    pub commands: Vec<(Role, Command)>,
}

/// How the calls of a visit are made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Place {
    Plain,
    Lua,
    Transaction,
    /// After WATCH, and before a transaction that shows whether the key was touched.
    Watched,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Role {
    /// Its reply says nothing of the module.
    Other,
    /// One of the commands of a look.
    Look,
    Call,
    Multi,
    Exec,
}

/// Bytes that print as redis-cli takes them.
#[derive(Clone, PartialEq)]
pub struct Text(pub Bytes);

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&typed(std::slice::from_ref(&self.0)))
    }
}

impl fmt::Debug for Visit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "all that was sent, {:?}, but for what looks at the keys:", self.place)?;
        for (role, command) in &self.commands {
            if *role != Role::Look {
                writeln!(f, "    {}", typed(command))?;
            }
        }
        Ok(())
    }
}

impl Visit {
    pub fn push(&mut self, role: Role, command: Command) {
        self.commands.push((role, command));
    }

    /// All commands as the server reads them.
    pub fn packed(&self) -> Bytes {
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
    pub fn answers(&self, connection: &mut Connection) -> RedisResult<Vec<(Role, Value)>> {
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

    pub fn calls(&self) -> impl Iterator<Item = &Command> {
        self.commands.iter().filter(|(role, _)| *role == Role::Call).map(|(_, command)| command)
    }
}
