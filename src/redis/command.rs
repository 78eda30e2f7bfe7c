//! A command: how it is registered, and how the server calls it.

use std::ffi::{CStr, c_int};
use std::slice;

use redis_module::raw;

use super::counts::{Counts, Outcome};
use super::{Argument, Context, ErrorReply, OK, Parameter};

/// A command of the module, created by [`command!`].
pub struct Command {
    pub name: &'static CStr,
    /// The version of the module that added the command.
    pub since: &'static CStr,
    pub summary: &'static CStr,
    pub parameters: &'static [Parameter],
    pub access: Access,
    /// The time complexity of a call.
    pub complexity: &'static CStr,
    /// The function that the server calls.
    pub entry: Entry,
    /// The counts of the command's calls, by outcome.
    pub counts: &'static Counts,
}

/// How a command accesses its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Read,
    ReadWrite,
}

type Entry = unsafe extern "C" fn(*mut raw::RedisModuleCtx, *mut *mut raw::RedisModuleString, c_int) -> c_int;

/// Creates a [`Command`] whose calls are handled by the file `$file`, with `$how` as additional arguments. The file
/// must define:
///
/// * `const ACCESS: Access` and `const COMPLEXITY: &CStr`, which describe each of its commands;
/// * `const fn parameters($how…) -> [Parameter; N]`;
/// * `fn call(&mut Context, &[Argument], $how…) -> Result<Outcome, impl Into<ErrorReply>>`.
macro_rules! command {
    (name: $name:literal, since: $since:literal, call: $file:ident($($how:expr),*), summary: $summary:literal) => {{
        static COUNTS: $crate::redis::counts::Counts = $crate::redis::counts::Counts::new();
        unsafe extern "C" fn entry(
            context: *mut ::redis_module::raw::RedisModuleCtx,
            arguments: *mut *mut ::redis_module::raw::RedisModuleString,
            count: ::std::ffi::c_int,
        ) -> ::std::ffi::c_int {
            // SAFETY: the server keeps the context and the `count` strings alive until this function returns, and no
            // borrow lasts longer. The first string is the command's name, so there is at least one.
            let (mut context, arguments) = unsafe { $crate::redis::begin(context, &arguments, count) };
            let result = $crate::$file::call(&mut context, arguments, $($how),*);
            $crate::redis::end(&context, result, &COUNTS)
        }
        $crate::redis::Command {
            name: $name,
            since: $since,
            summary: $summary,
            parameters: &const { $crate::$file::parameters($($how),*) },
            access: $crate::$file::ACCESS,
            complexity: $crate::$file::COMPLEXITY,
            entry,
            counts: &COUNTS,
        }
    }};
}
pub(crate) use command;

/// Begins a call. Returns the call's context and its arguments, which are the words after the command's name.
///
/// # Safety
/// The context must be live during the call. There must be at least one string at `words`, and all `count` strings must
/// be live while `words` is borrowed.
pub unsafe fn begin(
    context: *mut raw::RedisModuleCtx,
    words: &*mut *mut raw::RedisModuleString,
    count: c_int,
) -> (Context, &[Argument]) {
    let count = usize::try_from(count.cast_unsigned()).unwrap_or(0);
    // SAFETY: the caller promises that the strings are live, and an `Argument` is only a string pointer.
    let arguments = unsafe { slice::from_raw_parts((*words).cast::<Argument>().add(1), count.wrapping_sub(1)) };
    (Context(context), arguments)
}

/// Finishes a call: counts its outcome and, if it failed, replies with the error.
pub fn end<E: Into<ErrorReply>>(context: &Context, result: Result<Outcome, E>, counts: &Counts) -> c_int {
    match result {
        Ok(Outcome::Allowed) => counts.allowed.increment(),
        Ok(Outcome::Limited) => counts.limited.increment(),
        Err(error) => {
            counts.errors.increment();
            context.reply_error(error.into());
        }
    }
    OK
}

impl Command {
    /// Registers the command, and describes it to servers that accept descriptions (Redis 7 and later). Returns whether
    /// the server has accepted both.
    pub(super) fn register(&self, context: &Context) -> bool {
        let (last_key, key_step) = self.last_key_and_step();
        // SAFETY: the context is live, and the server copies the strings and calls `entry` as `begin` requires.
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
        // SAFETY: only `Export_RedisModule_Init` writes these pointers. Each is `None` on a server that lacks the
        // function.
        let (get, set_info, set_categories) = unsafe {
            (raw::RedisModule_GetCommand, raw::RedisModule_SetCommandInfo, raw::RedisModule_SetCommandACLCategories)
        };
        let Some(get) = get else { return true };
        // SAFETY: the context is live. The command has just been created, so the result is not null.
        let command = unsafe { get(context.0, self.name.as_ptr()) };
        if let Some(set) = set_info {
            // SAFETY: the server copies everything that `info` points to.
            if self.describe(|info| unsafe { set(command, info) }) != OK {
                return false;
            }
        }
        // SAFETY: the server copies the text.
        set_categories.is_none_or(|set| unsafe { set(command, self.categories().as_ptr()) } == OK)
    }

    /// Returns the command's flags. Like MSET, a command that accepts any number of keys is not "fast", because each
    /// key takes time.
    fn flags(&self) -> &'static CStr {
        match (self.access, self.key_group()) {
            (Access::Read, _) => c"readonly fast",
            (Access::ReadWrite, None) => c"write deny-oom fast",
            (Access::ReadWrite, Some(_)) => c"write deny-oom",
        }
    }

    /// Returns the ACL categories, for rules such as `ACL SETUSER … +@write`.
    fn categories(&self) -> &'static CStr {
        match (self.access, self.key_group()) {
            (Access::Read, _) => c"read fast",
            (Access::ReadWrite, None) => c"write fast",
            (Access::ReadWrite, Some(_)) => c"write slow",
        }
    }
}
