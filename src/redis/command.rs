//! A command, as it is registered and as the server describes it in `COMMAND DOCS`, key specs and redis-cli's hints.

use std::ffi::{CStr, c_char, c_int};
use std::{ptr, slice};

use redis_module::raw;

use super::call::{Argument, ErrorReply};
use super::{Context, OK};
use crate::counts::{Counts, Outcome};

pub struct Command {
    pub name: &'static CStr,
    pub handler: Handler,
    pub access: Access,
    /// The version that brought the command.
    pub since: &'static CStr,
    pub summary: &'static CStr,
    pub parameters: &'static [Parameter],
}

/// What a command does to its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Read,
    ReadWrite,
}

/// What the server calls, and the counts of how that ended. Made by [`handler!`].
pub struct Handler {
    pub entry: Entry,
    pub counts: &'static Counts,
}

type Entry = unsafe extern "C" fn(*mut raw::RedisModuleCtx, *mut *mut raw::RedisModuleString, c_int) -> c_int;

/// The [`Handler`] of a `fn(&Context, &[Argument]) -> Result<Outcome, impl Into<ErrorReply>>`.
macro_rules! handler {
    ($call:expr) => {{
        static COUNTS: $crate::counts::Counts = $crate::counts::Counts::new();
        unsafe extern "C" fn entry(
            context: *mut ::redis_module::raw::RedisModuleCtx,
            arguments: *mut *mut ::redis_module::raw::RedisModuleString,
            count: ::std::ffi::c_int,
        ) -> ::std::ffi::c_int {
            // SAFETY: the server passes what `run` asks for.
            unsafe { $crate::redis::run(context, arguments, count, $call, &COUNTS) }
        }
        $crate::redis::Handler { entry, counts: &COUNTS }
    }};
}
pub(crate) use handler;

/// Runs one call of a command, and replies with its error if it returns one.
///
/// # Safety
/// `context` and the `count` strings at `arguments` live as long as the call.
#[inline(always)]
pub unsafe fn run<E: Into<ErrorReply>>(
    context: *mut raw::RedisModuleCtx,
    arguments: *mut *mut raw::RedisModuleString,
    count: c_int,
    call: impl Fn(&Context, &[Argument]) -> Result<Outcome, E>,
    counts: &Counts,
) -> c_int {
    let context = Context(context);
    let count = usize::try_from(count.cast_unsigned()).unwrap_or(0);
    // SAFETY: as promised by the caller; an `Argument` is a string pointer and nothing else.
    let arguments = unsafe { slice::from_raw_parts(arguments.cast(), count) };
    let result = call(&context, arguments);
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
    /// Parameters that are given one or more times, together.
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

    pub const fn optional(self) -> Self {
        Self { optional: true, ..self }
    }
}

impl Command {
    /// Registers the command, and describes it where the server takes a description: Redis 7 and later.
    pub(super) fn register(&self, context: &Context) -> bool {
        let (last_key, key_step) = self.last_key_and_step();
        // SAFETY: the context is live, the server copies the strings, and calls `entry` as `run` asks for.
        let created = unsafe {
            api!(RedisModule_CreateCommand)(
                context.0,
                self.name.as_ptr(),
                Some(self.handler.entry),
                self.flags().as_ptr(),
                1,
                last_key,
                key_step,
            )
        };
        if created != OK {
            return false;
        }
        // SAFETY: written once, by `Export_RedisModule_Init`; none on a server that is older than the function.
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

    /// A command on any number of keys takes as long as they are many: it is not fast, as MSET is not.
    fn flags(&self) -> &'static CStr {
        match (self.access, self.repeated()) {
            (Access::Read, _) => c"readonly fast",
            (Access::ReadWrite, None) => c"write deny-oom fast",
            (Access::ReadWrite, Some(_)) => c"write deny-oom",
        }
    }

    /// For `ACL SETUSER … +@write` and the like.
    fn categories(&self) -> &'static CStr {
        match (self.access, self.repeated()) {
            (Access::Read, _) => c"read fast",
            (Access::ReadWrite, None) => c"write fast",
            (Access::ReadWrite, Some(_)) => c"write slow",
        }
    }

    fn complexity(&self) -> &'static CStr {
        match self.repeated() {
            None => c"O(1)",
            Some(_) => c"O(N log N), N being the number of limiters",
        }
    }

    /// Last key and step from key to key, counted as `RedisModule_CreateCommand` does. The first key is argument 1.
    fn last_key_and_step(&self) -> (c_int, c_int) {
        self.repeated().map_or((1, 1), |group| (-1, length(group.len())))
    }

    /// The fewest words of a call, as a negative number: more are allowed.
    fn arity(&self) -> c_int {
        let needed = self.parameters.iter().filter(|parameter| !parameter.optional).count();
        let needed = self.repeated().map_or(needed, <[_]>::len);
        length(needed).saturating_add(1).saturating_neg()
    }

    /// The parameters that are given again and again, if there are such.
    fn repeated(&self) -> Option<&'static [Parameter]> {
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
        // Here it is relative to the first key, unless it counts from the end.
        let last_key = if last_key < 0 { last_key } else { last_key.saturating_sub(1) };
        let mut keys = [
            key_spec(raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX, self.access, last_key, step),
            key_spec(raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INVALID, self.access, 0, 0),
        ];
        // The group's own list must outlive the list that points to it.
        let mut group = list(self.repeated().unwrap_or_default(), ptr::null_mut());
        let mut parameters = list(self.parameters, group.as_mut_ptr());
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
            args: parameters.as_mut_ptr(),
        })
    }
}

fn length(length: usize) -> c_int {
    length.try_into().unwrap_or(c_int::MAX)
}

/// What is written depends on what was read. `INVALID` marks the end of a list.
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

/// The parameters, and after them one without a name, which marks the end.
fn list(parameters: &[Parameter], group: *mut raw::RedisModuleCommandArg) -> Vec<raw::RedisModuleCommandArg> {
    let end = argument(ptr::null(), ptr::null(), Kind::Integer, 0, ptr::null_mut());
    let described = parameters.iter().map(|parameter| {
        let summary = parameter.summary.map_or(ptr::null(), CStr::as_ptr);
        let flags = match parameter.kind {
            Kind::Repeated(_) => raw::REDISMODULE_CMD_ARG_MULTIPLE,
            _ if parameter.optional => raw::REDISMODULE_CMD_ARG_OPTIONAL,
            _ => raw::REDISMODULE_CMD_ARG_NONE,
        };
        argument(parameter.name.as_ptr(), summary, parameter.kind, flags, group)
    });
    described.chain([end]).collect()
}

fn argument(
    name: *const c_char,
    summary: *const c_char,
    kind: Kind,
    flags: u32,
    group: *mut raw::RedisModuleCommandArg,
) -> raw::RedisModuleCommandArg {
    let (type_, key_spec_index, subargs) = match kind {
        Kind::Key => (raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY, 0, ptr::null_mut()),
        Kind::Integer => (raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER, -1, ptr::null_mut()),
        Kind::Repeated(_) => (raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK, -1, group),
    };
    raw::RedisModuleCommandArg {
        name,
        type_,
        key_spec_index,
        token: ptr::null(),
        summary,
        since: ptr::null(),
        flags: flags.cast_signed(),
        deprecated_since: ptr::null(),
        subargs,
        display_text: ptr::null(),
    }
}
