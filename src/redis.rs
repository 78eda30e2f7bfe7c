//! A thin safe face on the module API: the only file with `unsafe`, and no more of the API than the others use.
//!
//! The server runs one command at a time on one thread, and calls into the module only through `RedisModule_OnLoad`,
//! what is registered there, and `RedisModule_OnUnload`. Every SAFETY line below rests on that.

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_longlong, c_void};
use std::panic::{self, PanicHookInfo};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::{ptr, slice};

use redis_module::raw;

use crate::counts::{Counts, Outcome};
use crate::decimal::{self, Decimal};
use crate::docs::Parameter;
use crate::error::{Error, Refusal};
use crate::funnel::Nanos;

const OK: c_int = 0;
const ERR: c_int = 1;
const API_VERSION: c_int = 1;
const READ: c_int = 1 << 0;
const WRITE: c_int = 1 << 1;
const KEYTYPE_EMPTY: c_int = 0;
/// Of valkeymodule.h. Without it, Valkey 9 refuses to move slots by itself (`CLUSTER MIGRATESLOTS`).
const VALKEYMODULE_OPTIONS_HANDLE_ATOMIC_SLOT_MIGRATION: u32 = 1 << 5;
/// The word `PXAT`, which every allowed call replicates: one string for as long as the module is loaded.
static PXAT: AtomicPtr<raw::RedisModuleString> = AtomicPtr::new(ptr::null_mut());

/// When the module was loaded, by [`Context::command_time`].
static LOADED_AT: AtomicU64 = AtomicU64::new(0);

/// Names the functions of the API that the module calls: `RedisModule_OnLoad` refuses a server that lacks one, and
/// [`api!`] takes no other.
macro_rules! required {
    ($($function:ident)*) => {
        #[allow(non_upper_case_globals, reason = "named as in the API")]
        mod required {
            $(pub const $function: () = ();)*
        }

        fn first_missing() -> Option<&'static str> {
            $(
                // SAFETY: written once, by `Export_RedisModule_Init`, before this is called.
                if unsafe { raw::$function }.is_none() {
                    return Some(stringify!($function));
                }
            )*
            None
        }
    };
}

required! {
    RedisModule_Call
    RedisModule_CloseKey
    RedisModule_CreateCommand
    RedisModule_CreateString
    RedisModule_DeleteKey
    RedisModule_FreeServerInfo
    RedisModule_FreeString
    RedisModule_GetNotifyKeyspaceEvents
    RedisModule_GetServerInfo
    RedisModule_InfoAddFieldCString
    RedisModule_InfoAddFieldULongLong
    RedisModule_InfoAddSection
    RedisModule_InfoBeginDictField
    RedisModule_InfoEndDictField
    RedisModule_KeyType
    RedisModule_NotifyKeyspaceEvent
    RedisModule_OpenKey
    RedisModule_RegisterInfoFunc
    RedisModule_Replicate
    RedisModule_ReplyWithArray
    RedisModule_ReplyWithError
    RedisModule_ReplyWithLongLong
    RedisModule_ServerInfoGetFieldUnsigned
    RedisModule_SetAbsExpire
    RedisModule_SetModuleOptions
    RedisModule_SignalModifiedKey
    RedisModule_StringDMA
    RedisModule_StringPtrLen
    RedisModule_StringSet
    RedisModule_StringToLongLong
    RedisModule_WrongArity
}

/// A function of the API. Only for use after the module has loaded: it is then known to be there.
macro_rules! api {
    ($function:ident) => {{
        let () = required::$function;
        raw::$function.unwrap_unchecked()
    }};
}

/// A command, as it is registered and as `COMMAND DOCS` describes it.
pub struct Command {
    pub name: &'static CStr,
    pub handler: Handler,
    pub summary: &'static CStr,
    pub complexity: &'static CStr,
    pub parameters: &'static [Parameter],
}

/// What the server calls, and the counts of how that ended. Made by [`handler!`].
pub struct Handler {
    pub entry: Entry,
    pub counts: &'static Counts,
}

type Entry = unsafe extern "C" fn(*mut raw::RedisModuleCtx, *mut *mut raw::RedisModuleString, c_int) -> c_int;

/// The [`Handler`] of a `fn(&Context, &[Argument]) -> Result<Outcome, Refusal>`.
macro_rules! handler {
    ($call:path) => {{
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
pub unsafe fn run(
    context: *mut raw::RedisModuleCtx,
    arguments: *mut *mut raw::RedisModuleString,
    count: c_int,
    call: impl Fn(&Context, &[Argument]) -> Result<Outcome, Refusal>,
    counts: &Counts,
) -> c_int {
    let context = Context(context);
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: as promised by the caller; an `Argument` is a string pointer and nothing else.
    let arguments = unsafe { slice::from_raw_parts(arguments.cast(), count) };
    let result = call(&context, arguments);
    counts.count(&result);
    if let Err(refusal) = result {
        context.reply_error(&refusal);
    }
    OK
}

/// The system's wall clock. One that stands before 1970 or in 2262 or later counts as standing there.
pub fn now() -> Nanos {
    /// With any fraction it is still in 63 bits of nanoseconds.
    const LAST_SECOND: i64 = i64::MAX / 1_000_000_000 - 1;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: this writes `time`, and fails only for a clock that does not exist.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &mut time) };
    let seconds = time.tv_sec.clamp(0, LAST_SECOND).cast_unsigned();
    let nanos = time.tv_nsec.cast_unsigned();
    Nanos(seconds.wrapping_mul(1_000_000_000).wrapping_add(nanos))
}

/// The server's context of one call.
pub struct Context(*mut raw::RedisModuleCtx);

impl Context {
    /// Opens the key `name` for reading and writing, whether it exists or not.
    pub fn open_key<'a>(&'a self, name: &'a Argument) -> Key<'a> {
        // SAFETY: context and name are live, as their borrows show.
        let handle = unsafe { api!(RedisModule_OpenKey)(self.0, name.0, READ | WRITE) };
        Key { context: self, name, handle }
    }

    /// Announces an array of so many elements, which are to follow.
    pub fn reply_array(&self, length: usize) {
        let length = length.try_into().unwrap_or(c_long::MAX);
        // SAFETY: the context is live.
        unsafe { api!(RedisModule_ReplyWithArray)(self.0, length) };
    }

    pub fn reply_integer(&self, integer: i64) {
        // SAFETY: the context is live.
        unsafe { api!(RedisModule_ReplyWithLongLong)(self.0, integer) };
    }

    /// Tells other modules of an event about `key`, and clients, where `notify-keyspace-events` has the class `d`.
    /// No key may be open: what other modules do then is up to them.
    pub fn notify(&self, event: &CStr, key: &Argument) {
        // SAFETY: context and key are live, and the server copies the event's name.
        unsafe {
            // Mostly nobody listens, and to ask costs less than to be told.
            if api!(RedisModule_GetNotifyKeyspaceEvents)() & raw::REDISMODULE_NOTIFY_MODULE != 0 {
                api!(RedisModule_NotifyKeyspaceEvent)(self.0, raw::REDISMODULE_NOTIFY_MODULE, event.as_ptr(), key.0);
            }
        }
    }

    /// Whether the server has a command of this name: the operator may have renamed or disabled it.
    fn has_command(&self, name: &CStr) -> bool {
        // SAFETY: the context is live. The command takes arguments, so that without any it is looked up and not run, and
        // there is no reply to be freed.
        unsafe { api!(RedisModule_Call)(self.0, name.as_ptr(), c"".as_ptr()) };
        std::io::Error::last_os_error().raw_os_error() != Some(libc::ENOENT)
    }

    /// The server's time in microseconds, which stands still while a command runs.
    fn command_time(&self) -> u64 {
        // SAFETY: the context is live, and so is the information until it is freed.
        unsafe {
            let server = api!(RedisModule_GetServerInfo)(self.0, c"server".as_ptr());
            let field = c"server_time_usec".as_ptr();
            let time = api!(RedisModule_ServerInfoGetFieldUnsigned)(server, field, ptr::null_mut());
            api!(RedisModule_FreeServerInfo)(self.0, server);
            time
        }
    }

    #[cold]
    fn reply_error(&self, refusal: &Refusal) {
        // SAFETY: the context is live, and the server copies the text.
        unsafe {
            match refusal {
                Refusal::Call(Error::WrongArity) => api!(RedisModule_WrongArity)(self.0),
                _ => api!(RedisModule_ReplyWithError)(self.0, c_string(refusal.to_string()).as_ptr()),
            };
        }
    }

    fn log(&self, level: &CStr, line: String) {
        // SAFETY: the context is live, and the format asks for the one string that it gets.
        unsafe {
            if let Some(log) = raw::RedisModule_Log {
                log(self.0, level.as_ptr(), c"%s".as_ptr(), c_string(line).as_ptr());
            }
        }
    }
}

/// An argument of a call, the command's own name being the first.
#[repr(transparent)]
pub struct Argument(*mut raw::RedisModuleString);

impl Argument {
    pub fn bytes(&self) -> &[u8] {
        let mut length = 0;
        // SAFETY: the string is live, and the server does not change a call's arguments.
        unsafe { slice::from_raw_parts(api!(RedisModule_StringPtrLen)(self.0, &mut length).cast(), length) }
    }

    /// The integer that it spells, by the server's own rules: none if it is not one or not in 64 bits.
    #[inline(always)]
    pub fn integer(&self) -> Option<i64> {
        // The usual argument is short, and read here for a fourth of the server's price.
        decimal::parse_short(self.bytes()).map_or_else(|| self.any_integer(), |short| Some(short.into()))
    }

    #[cold]
    fn any_integer(&self) -> Option<i64> {
        let mut integer: c_longlong = 0;
        // SAFETY: the string is live, and `integer` is written before this returns.
        let status = unsafe { api!(RedisModule_StringToLongLong)(self.0, &mut integer) };
        (status == OK).then_some(integer)
    }
}

/// A key open for reading and writing, closed when dropped.
pub struct Key<'a> {
    context: &'a Context,
    name: &'a Argument,
    handle: *mut raw::RedisModuleKey,
}

/// What a key holds.
pub enum Value<'a> {
    Absent,
    String(&'a [u8]),
    OtherType,
}

impl Key<'_> {
    pub fn value(&self) -> Value<'_> {
        let mut length = 0;
        // SAFETY: the handle is open. The bytes stay as they are until the key is written, which takes `&mut self`.
        unsafe {
            let bytes = api!(RedisModule_StringDMA)(self.handle, &mut length, READ);
            if bytes.is_null() {
                return Value::OtherType;
            }
            // A key that is not there reads as an empty string.
            if length == 0 && api!(RedisModule_KeyType)(self.handle) == KEYTYPE_EMPTY {
                return Value::Absent;
            }
            Value::String(slice::from_raw_parts(bytes.cast(), length))
        }
    }

    /// Makes the key a string of these bytes that expires at `expire_at` ms since the epoch, here and, as that very
    /// effect, in the AOF and on replicas.
    #[inline(always)]
    pub fn set(&mut self, bytes: &[u8], expire_at: u64) {
        let expiry = Decimal::new(expire_at);
        // SAFETY: the handle is open for writing. The buffer, null where the key holds another type, has the length of the bytes,
        // and nobody else holds it. The strings live until the server has copied or retained them.
        unsafe {
            let mut length = 0;
            let buffer = api!(RedisModule_StringDMA)(self.handle, &mut length, WRITE);
            if !buffer.is_null() && length == bytes.len() {
                ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.cast(), length);
            } else {
                let string = new_string(bytes);
                api!(RedisModule_StringSet)(self.handle, string);
                free_string(string);
            }
            api!(RedisModule_SetAbsExpire)(self.handle, expire_at.cast_signed());
            api!(RedisModule_SignalModifiedKey)(self.context.0, self.name.0);
            api!(RedisModule_Replicate)(
                self.context.0,
                c"SET".as_ptr(),
                c"sbsb".as_ptr(),
                self.name.0,
                bytes.as_ptr().cast::<c_char>(),
                bytes.len(),
                PXAT.load(Ordering::Relaxed),
                expiry.as_bytes().as_ptr().cast::<c_char>(),
                expiry.as_bytes().len(),
            );
        }
    }
}

impl Key<'_> {
    /// Deletes the key, here and, as that very effect, in the AOF and on replicas.
    #[cold]
    pub fn delete(&mut self) {
        // SAFETY: the handle is open for writing, and context and name are live.
        unsafe {
            api!(RedisModule_DeleteKey)(self.handle);
            api!(RedisModule_SignalModifiedKey)(self.context.0, self.name.0);
            api!(RedisModule_Replicate)(self.context.0, c"DEL".as_ptr(), c"s".as_ptr(), self.name.0);
        }
    }
}

impl Drop for Key<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle is open and is not used again.
        unsafe { api!(RedisModule_CloseKey)(self.handle) }
    }
}

/// Called by the server, Redis or Valkey, when it loads the module.
///
/// # Safety
/// `context` and the `count` strings at `arguments` are live.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the server looks it up by this name")]
pub unsafe extern "C" fn RedisModule_OnLoad(
    context: *mut raw::RedisModuleCtx,
    arguments: *mut *mut raw::RedisModuleString,
    count: c_int,
) -> c_int {
    // SAFETY: the context is live, and this is the first that is called of the API: it looks up all the others.
    if unsafe { raw::Export_RedisModule_Init(context, crate::NAME.as_ptr(), crate::VERSION_NUMBER, API_VERSION) } != OK
    {
        return ERR;
    }
    let context = Context(context);
    if let Some(function) = first_missing() {
        context.log(
            c"warning",
            format!("redis-cell {} needs Redis 6.2.2 or Valkey 7.2 or later: {function} is missing", crate::VERSION),
        );
        return ERR;
    }
    // SAFETY: as promised by the caller; an `Argument` is a string pointer and nothing else.
    let argument = (count > 0).then(|| unsafe { &*arguments.cast::<Argument>() });
    if let Some(argument) = argument {
        context.log(
            c"warning",
            format!(
                "redis-cell {} takes no arguments, but is given \"{}\"",
                crate::VERSION,
                argument.bytes().escape_ascii()
            ),
        );
        return ERR;
    }
    for (name, spelling) in [(c"SET", "SET"), (c"DEL", "DEL")] {
        if !context.has_command(name) {
            context.log(
                c"warning",
                format!(
                    "redis-cell {} needs the command {spelling}, with which it replicates and which is renamed or \
                     disabled here: remove its rename-command from the settings",
                    crate::VERSION
                ),
            );
            return ERR;
        }
    }
    // A panic is a defect of ours, and ends the server, which then reports a crash: this is to say where it began.
    panic::set_hook(Box::new(|panic| {
        Context(ptr::null_mut()).log(c"warning", last_words(panic));
    }));
    // A limited call must not look like a write to WATCH and client-side caches, so a write signals itself; and there
    // is no state outside the keyspace that a replica's asynchronous loading or the move of a slot could tear.
    let mut options =
        raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED | raw::REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD;
    if is_valkey() {
        options |= VALKEYMODULE_OPTIONS_HANDLE_ATOMIC_SLOT_MIGRATION;
    }
    // SAFETY: the context is live, and `first_missing` has seen every function.
    unsafe { api!(RedisModule_SetModuleOptions)(context.0, options.cast_signed()) }
    for command in &crate::COMMANDS {
        if !command.register(&context) {
            context
                .log(c"warning", format!("{:?} could not be registered: is another redis-cell loaded?", command.name));
            return ERR;
        }
    }
    // SAFETY: as above; `info` is what the server expects.
    unsafe { api!(RedisModule_RegisterInfoFunc)(context.0, Some(info)) };
    // SAFETY: `first_missing` has seen every function.
    PXAT.store(unsafe { new_string(b"PXAT") }, Ordering::Relaxed);
    LOADED_AT.store(context.command_time(), Ordering::Relaxed);
    context.log(c"notice", format!("redis-cell {} is ready", crate::VERSION));
    OK
}

/// Called by the server before it unloads the module, which an error keeps loaded.
///
/// Every server keeps a pointer to the last command of each client, and follows it after an unload has freed the command:
/// on `CLIENT LIST`, on Redis 8 at the client's next call. So the module stays, unless the server takes a load back, as
/// it does for settings that no module knows: there has been no call yet, and Redis 8 ends if that is refused.
///
/// # Safety
/// The module has loaded, and `context` is live.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the server looks it up by this name")]
pub unsafe extern "C" fn RedisModule_OnUnload(context: *mut raw::RedisModuleCtx) -> c_int {
    let context = Context(context);
    if context.command_time() != LOADED_AT.load(Ordering::Relaxed) {
        let line = format!(
            "redis-cell {} stays loaded until a restart: servers crash when a module goes whose commands clients have called",
            crate::VERSION
        );
        context.log(c"warning", line);
        return ERR;
    }
    let pxat = PXAT.swap(ptr::null_mut(), Ordering::Relaxed);
    // SAFETY: the string is from `new_string`, and nobody uses it any more.
    unsafe { free_string(pxat) }
    OK
}

/// Whether the server is a Valkey: only there, the API goes by that name as well.
fn is_valkey() -> bool {
    let mut function: *mut c_void = ptr::null_mut();
    // SAFETY: written by `Export_RedisModule_Init`, before this is called; it writes one pointer where it is told to.
    unsafe {
        raw::RedisModule_GetApi.is_some_and(|get_api| {
            let name = c"ValkeyModule_SetModuleOptions";
            get_api(name.as_ptr(), (&raw mut function).cast()) == OK
        })
    }
}

/// The module's part of `INFO`: its version, and how the calls of each command ended.
///
/// # Safety
/// `info` is live.
unsafe extern "C" fn info(info: *mut raw::RedisModuleInfoCtx, _for_crash_report: c_int) {
    // SAFETY: `info` is live, and the server copies the strings.
    unsafe {
        api!(RedisModule_InfoAddSection)(info, ptr::null());
        api!(RedisModule_InfoAddFieldCString)(info, c"version".as_ptr(), c_string(crate::VERSION.to_string()).as_ptr());
        for Command { name, handler: Handler { counts, .. }, .. } in &crate::COMMANDS {
            api!(RedisModule_InfoBeginDictField)(info, name.as_ptr());
            api!(RedisModule_InfoAddFieldULongLong)(info, c"allowed".as_ptr(), counts.allowed.get());
            api!(RedisModule_InfoAddFieldULongLong)(info, c"limited".as_ptr(), counts.limited.get());
            api!(RedisModule_InfoAddFieldULongLong)(info, c"errors".as_ptr(), counts.errors.get());
            api!(RedisModule_InfoEndDictField)(info);
        }
    }
}

impl Command {
    /// Registers the command, and describes it to a server that has a place for that: Redis 7 and later.
    fn register(&self, context: &Context) -> bool {
        let (last_key, key_step) = self.last_key_and_step();
        // SAFETY: the context is live, the server copies the strings, and calls `entry` as `run` asks for.
        let created = unsafe {
            api!(RedisModule_CreateCommand)(
                context.0,
                self.name.as_ptr(),
                Some(self.handler.entry),
                c"write deny-oom fast".as_ptr(),
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
            // SAFETY: as above.
            && set_categories.is_none_or(|set| unsafe { set(command, c"write fast".as_ptr()) } == OK)
    }
}

/// A string of the server's that no call owns.
///
/// # Safety
/// The module has loaded.
unsafe fn new_string(bytes: &[u8]) -> *mut raw::RedisModuleString {
    // SAFETY: the server copies the bytes.
    unsafe { api!(RedisModule_CreateString)(ptr::null_mut(), bytes.as_ptr().cast(), bytes.len()) }
}

/// # Safety
/// The string is from `new_string` and is not used again.
unsafe fn free_string(string: *mut raw::RedisModuleString) {
    // SAFETY: as promised by the caller. Whoever else uses the string has retained it.
    unsafe { api!(RedisModule_FreeString)(ptr::null_mut(), string) }
}

/// A panic's place and message, in one line.
fn last_words(panic: &PanicHookInfo) -> String {
    format!("redis-cell {} {panic}", crate::VERSION).replace('\n', " ")
}

/// For texts of our own, in which there is no NUL.
fn c_string(text: String) -> CString {
    CString::new(text).unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::panic, clippy::unwrap_used, reason = "it is about panics")]
#[test]
fn a_panic_is_told_in_one_line_with_its_place() {
    static LINE: std::sync::Mutex<String> = std::sync::Mutex::new(String::new());
    panic::set_hook(Box::new(|panic| *LINE.lock().unwrap() = last_words(panic)));
    panic::catch_unwind(|| panic!("two\nlines")).unwrap_err();
    drop(panic::take_hook());
    let line = LINE.lock().unwrap();
    let begin = format!("redis-cell {} panicked at src/redis.rs:", crate::VERSION);
    assert!(line.starts_with(&begin) && line.ends_with(": two lines"), "{line}");
}
