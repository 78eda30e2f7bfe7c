//! A command's description: its parameters, and the key specs, `COMMAND DOCS` and redis-cli hints derived from them.

use std::ffi::{CStr, c_char, c_int};
use std::ptr;

use redis_module::raw;

use super::{Access, Command};

/// A parameter of a command.
#[derive(Debug, Clone, Copy)]
pub struct Parameter {
    name: &'static CStr,
    summary: Option<&'static CStr>,
    kind: Kind,
    optional: bool,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Key,
    Integer,
    /// A group of parameters that may repeat.
    Repeated(&'static [Parameter]),
}

impl Parameter {
    pub const fn key(name: &'static CStr, summary: &'static CStr) -> Self {
        Self { name, summary: Some(summary), kind: Kind::Key, optional: false }
    }

    pub const fn integer(name: &'static CStr, summary: &'static CStr) -> Self {
        Self { name, summary: Some(summary), kind: Kind::Integer, optional: false }
    }

    pub const fn repeated(name: &'static CStr, group: &'static [Parameter]) -> Self {
        Self { name, summary: None, kind: Kind::Repeated(group), optional: false }
    }

    pub fn name(&self) -> &'static str {
        self.name.to_str().unwrap_or_default()
    }

    /// If `optional` is true, makes this parameter optional, together with all the parameters that follow it.
    pub const fn optional_if(self, optional: bool) -> Self {
        Self { optional, ..self }
    }
}

impl Command {
    /// Passes the description to `take` in the server's own format. The description is valid only while `take` runs.
    pub(super) fn describe<T>(&self, take: impl FnOnce(&raw::RedisModuleCommandInfo) -> T) -> T {
        let version = raw::RedisModuleCommandInfoVersion {
            version: 1,
            sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
            sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
            sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
        };
        let (last_key, step) = self.last_key_and_step();
        // A key spec gives the position of the last key relative to the first. A negative position counts from the end.
        let last_key = if last_key < 0 { last_key } else { last_key.saturating_sub(1) };
        let mut keys = [
            key_spec(raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX, self.access, last_key, step),
            key_spec(raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INVALID, self.access, 0, 0),
        ];
        let mut lists = Vec::new();
        let parameters = list(self.parameters, &mut lists);
        take(&raw::RedisModuleCommandInfo {
            version: &version,
            summary: self.summary.as_ptr(),
            complexity: self.complexity.as_ptr(),
            since: self.since.as_ptr(),
            history: ptr::null_mut(),
            // The reply depends on the clock, so identical calls may get different replies.
            tips: c"nondeterministic_output".as_ptr(),
            arity: self.arity(),
            key_specs: keys.as_mut_ptr(),
            args: parameters,
        })
    }

    /// Returns the repeated group that begins with a key, if the command has one.
    pub(super) fn key_group(&self) -> Option<&'static [Parameter]> {
        match self.parameters {
            [Parameter { kind: Kind::Repeated(group), .. }] => Some(group),
            _ => None,
        }
    }

    /// Returns the position of the last key and the step between keys, as `RedisModule_CreateCommand` counts them. The
    /// first key is argument 1.
    pub(super) fn last_key_and_step(&self) -> (c_int, c_int) {
        self.key_group().map_or((1, 1), |group| (-1, length(group.len())))
    }

    /// Returns the minimum number of words in a call. The number is negative, which tells the server that more words
    /// are allowed.
    fn arity(&self) -> c_int {
        let needed = self.key_group().unwrap_or(self.parameters);
        let needed = needed.iter().take_while(|parameter| !parameter.optional).count();
        length(needed).saturating_add(1).saturating_neg()
    }
}

fn length(length: usize) -> c_int {
    length.try_into().unwrap_or(c_int::MAX)
}

/// Builds a key spec. A write depends on the old value, so it both accesses and updates the key. A spec whose `begin`
/// is `INVALID` marks the end of a list.
fn key_spec(
    begin: raw::RedisModuleKeySpecBeginSearchType,
    access: Access,
    last_key: c_int,
    step: c_int,
) -> raw::RedisModuleCommandKeySpec {
    let flags = match access {
        Access::Read => raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS,
        Access::ReadWrite => {
            raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_ACCESS | raw::REDISMODULE_CMD_KEY_UPDATE
        }
    };
    raw::RedisModuleCommandKeySpec {
        notes: ptr::null(),
        flags: flags.into(),
        begin_search_type: begin,
        bs: raw::RedisModuleCommandKeySpec__bindgen_ty_1 {
            index: raw::RedisModuleCommandKeySpec__bindgen_ty_1__bindgen_ty_1 { pos: 1 },
        },
        find_keys_type: raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE,
        fk: raw::RedisModuleCommandKeySpec__bindgen_ty_2 {
            range: raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_1 {
                lastkey: last_key,
                keystep: step,
                limit: 0,
            },
        },
    }
}

/// Converts the parameters to the server's format: a list that ends with a parameter without a name. `lists` owns this
/// list and all lists within it, and they are valid as long as `lists` is.
fn list(parameters: &[Parameter], lists: &mut Vec<Vec<raw::RedisModuleCommandArg>>) -> *mut raw::RedisModuleCommandArg {
    let mut described = Vec::new();
    let mut rest = parameters;
    while let [parameter, following @ ..] = rest {
        let optional =
            if parameter.optional { raw::REDISMODULE_CMD_ARG_OPTIONAL } else { raw::REDISMODULE_CMD_ARG_NONE };
        if parameter.optional && !following.is_empty() {
            // The optional parameters form a block: `[quantity [max_burst count period ...]]`.
            let together: Vec<_> = [&[parameter.optional_if(false)], following].concat();
            let block = list(&together, lists);
            described.push(argument(parameter.name.as_ptr(), ptr::null(), BLOCK, optional, block));
            break;
        }
        let name = parameter.name.as_ptr();
        let summary = parameter.summary.map_or(ptr::null(), CStr::as_ptr);
        described.push(match parameter.kind {
            Kind::Key => argument(name, summary, KEY, optional, ptr::null_mut()),
            Kind::Integer => argument(name, summary, INTEGER, optional, ptr::null_mut()),
            Kind::Repeated(group) => {
                let flags = optional | raw::REDISMODULE_CMD_ARG_MULTIPLE;
                argument(name, summary, BLOCK, flags, list(group, lists))
            }
        });
        rest = following;
    }
    described.push(argument(ptr::null(), ptr::null(), INTEGER, 0, ptr::null_mut()));
    // The pointer stays valid, because the elements of an inner list do not move when `lists` grows.
    let first = described.as_mut_ptr();
    lists.push(described);
    first
}

const KEY: raw::RedisModuleCommandArgType = raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY;
const INTEGER: raw::RedisModuleCommandArgType = raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER;
const BLOCK: raw::RedisModuleCommandArgType = raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK;

fn argument(
    name: *const c_char,
    summary: *const c_char,
    type_: raw::RedisModuleCommandArgType,
    flags: u32,
    subargs: *mut raw::RedisModuleCommandArg,
) -> raw::RedisModuleCommandArg {
    raw::RedisModuleCommandArg {
        name,
        type_,
        key_spec_index: if type_ == KEY { 0 } else { -1 },
        token: ptr::null(),
        summary,
        since: ptr::null(),
        flags: flags.cast_signed(),
        deprecated_since: ptr::null(),
        subargs,
        display_text: ptr::null(),
    }
}
