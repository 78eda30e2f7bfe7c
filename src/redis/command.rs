//! A command: its registration, and its description for `COMMAND DOCS`, key specs and redis-cli's hints.

use std::ffi::{CStr, c_char, c_int};
use std::{ptr, slice};

use redis_module::raw;

use super::{Argument, Context, ErrorReply, OK};
use crate::counts::{Counts, Outcome};

/// A command of the module, made by [`command!`].
pub struct Command {
    pub name: &'static CStr,
    /// The version that brought the command.
    pub since: &'static CStr,
    pub summary: &'static CStr,
    pub parameters: &'static [Parameter],
    pub access: Access,
    /// The function that the server calls.
    pub entry: Entry,
    /// The counts of how its calls ended.
    pub counts: &'static Counts,
}

/// The access of a command to its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Read,
    ReadWrite,
}

type Entry = unsafe extern "C" fn(*mut raw::RedisModuleCtx, *mut *mut raw::RedisModuleString, c_int) -> c_int;

/// Makes the [`Command`] that calls `$call(context, arguments, $further…)`, which returns
/// `Result<Outcome, impl Into<ErrorReply>>`.
macro_rules! command {
    ($name:literal $since:literal $access:ident $call:ident($($further:expr),*) $parameters:expr,
        $summary:literal) => {{
        static COUNTS: $crate::counts::Counts = $crate::counts::Counts::new();
        unsafe extern "C" fn entry(
            context: *mut ::redis_module::raw::RedisModuleCtx,
            arguments: *mut *mut ::redis_module::raw::RedisModuleString,
            count: ::std::ffi::c_int,
        ) -> ::std::ffi::c_int {
            // SAFETY: the server keeps the context and the arguments until this function returns, and no borrow of a
            // parameter lasts longer.
            let (context, arguments) = unsafe { $crate::redis::begin(context, &arguments, count) };
            let result = $call(&context, arguments, $($further),*);
            $crate::redis::end(&context, result, &COUNTS)
        }
        $crate::redis::Command {
            name: $name,
            since: $since,
            summary: $summary,
            parameters: &const { $parameters },
            access: $crate::redis::Access::$access,
            entry,
            counts: &COUNTS,
        }
    }};
}
pub(crate) use command;

/// Begins a call of a command: returns its context and its arguments.
///
/// # Safety
/// The context lives as long as the call, and the `count` strings at `arguments` as long as this borrow.
#[inline(always)]
pub unsafe fn begin(
    context: *mut raw::RedisModuleCtx,
    arguments: &*mut *mut raw::RedisModuleString,
    count: c_int,
) -> (Context, &[Argument]) {
    let count = usize::try_from(count.cast_unsigned()).unwrap_or(0);
    // SAFETY: as promised by the caller; an `Argument` is a string pointer and nothing else.
    let arguments = unsafe { slice::from_raw_parts((*arguments).cast(), count) };
    (Context(context), arguments)
}

/// Ends a call of a command: counts how it ended, and replies with its error if it returned one.
#[inline(always)]
pub fn end<E: Into<ErrorReply>>(context: &Context, result: Result<Outcome, E>, counts: &Counts) -> c_int {
    counts.count(&result);
    if let Err(error) = result {
        context.reply_error(error.into());
    }
    OK
}

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
    /// A group of parameters that is given one or more times.
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

    /// Makes the parameter optional, together with all that follow it.
    pub const fn optional_if(self, optional: bool) -> Self {
        Self { optional, ..self }
    }
}

impl Command {
    /// Registers the command, and describes it where the server takes a description: Redis 7 and later.
    pub(super) fn register(&self, context: &Context) -> bool {
        let (last_key, key_step) = self.last_key_and_step();
        // SAFETY: the context is live, the server copies the strings, and calls `entry` as `begin` asks for.
        let created = unsafe {
            api!(RedisModule_CreateCommand)(
                context.0,
                self.name.as_ptr(),
                Some(self.entry),
                self.flags().as_ptr(),
                1,
                last_key,
                key_step,
            )
        };
        if created != OK {
            return false;
        }
        // SAFETY: written once, by `Export_RedisModule_Init`; `None` on a server that lacks the function.
        let (get, set_info, set_categories) = unsafe {
            (raw::RedisModule_GetCommand, raw::RedisModule_SetCommandInfo, raw::RedisModule_SetCommandACLCategories)
        };
        let Some(get) = get else { return true };
        // SAFETY: the command has just been created.
        let command = unsafe { get(context.0, self.name.as_ptr()) };
        // SAFETY: the server copies all that `info` points to.
        set_info.is_none_or(|set| self.describe(|info| unsafe { set(command, info) } == OK))
            // SAFETY: the server copies the text.
            && set_categories.is_none_or(|set| unsafe { set(command, self.categories().as_ptr()) } == OK)
    }

    /// Returns the flags. Like MSET, a command on any number of keys has no flag "fast": each key takes some time.
    fn flags(&self) -> &'static CStr {
        match (self.access, self.key_group()) {
            (Access::Read, _) => c"readonly fast",
            (Access::ReadWrite, None) => c"write deny-oom fast",
            (Access::ReadWrite, Some(_)) => c"write deny-oom",
        }
    }

    /// Returns the categories for `ACL SETUSER … +@write` and the like.
    fn categories(&self) -> &'static CStr {
        match (self.access, self.key_group()) {
            (Access::Read, _) => c"read fast",
            (Access::ReadWrite, None) => c"write fast",
            (Access::ReadWrite, Some(_)) => c"write slow",
        }
    }

    fn complexity(&self) -> &'static CStr {
        match self.key_group() {
            None => c"O(1)",
            Some(_) => c"O(N log N), N being the number of limiters",
        }
    }

    /// Returns the last key and the step from key to key, as `RedisModule_CreateCommand` counts: the first key is
    /// argument 1.
    fn last_key_and_step(&self) -> (c_int, c_int) {
        self.key_group().map_or((1, 1), |group| (-1, length(group.len())))
    }

    /// Returns the fewest words of a call, as a negative number: that sign tells the server that more are allowed.
    fn arity(&self) -> c_int {
        let needed = self.key_group().unwrap_or(self.parameters);
        let needed = needed.iter().take_while(|parameter| !parameter.optional).count();
        length(needed).saturating_add(1).saturating_neg()
    }

    /// Returns the repeated group that begins with a key, if the command has one.
    fn key_group(&self) -> Option<&'static [Parameter]> {
        match self.parameters {
            [Parameter { kind: Kind::Repeated(group), .. }] => Some(group),
            _ => None,
        }
    }

    /// Hands the description to `take` in the server's own form, which lives as long as `take` runs.
    fn describe<T>(&self, take: impl FnOnce(&raw::RedisModuleCommandInfo) -> T) -> T {
        let version = raw::RedisModuleCommandInfoVersion {
            version: 1,
            sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
            sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
            sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
        };
        let (last_key, step) = self.last_key_and_step();
        // A key spec counts the last key from the first key on. A negative number counts from the end.
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
            complexity: self.complexity().as_ptr(),
            since: self.since.as_ptr(),
            history: ptr::null_mut(),
            // The reply depends on the clock.
            tips: c"nondeterministic_output".as_ptr(),
            arity: self.arity(),
            key_specs: keys.as_mut_ptr(),
            args: parameters,
        })
    }
}

fn length(length: usize) -> c_int {
    length.try_into().unwrap_or(c_int::MAX)
}

/// Makes a key spec. A write depends on the old value, so it accesses the key and updates it. A spec that begins with
/// `INVALID` ends a list.
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

/// Converts the parameters to the server's form: a list that ends with a parameter without a name. The list is valid
/// for as long as `lists`, which keeps it and the lists that it points to.
fn list(parameters: &[Parameter], lists: &mut Vec<Vec<raw::RedisModuleCommandArg>>) -> *mut raw::RedisModuleCommandArg {
    let mut described = Vec::new();
    let mut rest = parameters;
    while let [parameter, following @ ..] = rest {
        let optional =
            if parameter.optional { raw::REDISMODULE_CMD_ARG_OPTIONAL } else { raw::REDISMODULE_CMD_ARG_NONE };
        if parameter.optional && !following.is_empty() {
            // This block may be left out as a whole: `[quantity [max_burst count period ...]]`.
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
    // The pointer stays valid: an inner list does not move when `lists` grows.
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
