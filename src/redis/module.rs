//! The module as a whole: its load, its refusal to be unloaded, its part of `INFO`, and the log line of a panic.

use std::ffi::{CStr, c_int, c_void};
use std::panic::{self, PanicHookInfo};
use std::ptr;
use std::sync::{Mutex, OnceLock};

use redis_module::raw;

use super::context::c_string;
use super::{Argument, Command, Context, ERR, OK, check_functions, key, listeners};

const API_VERSION: c_int = 1;
/// An option of valkeymodule.h. Under it, Valkey 8.1 and newer replicate SET and DEL without checking that they exist:
/// this module has checked that when it was loaded.
const VALKEYMODULE_OPTIONS_SKIP_COMMAND_VALIDATION: c_int = 1 << 4;
/// An option of valkeymodule.h. Without it, Valkey 9 refuses to move slots by itself (`CLUSTER MIGRATESLOTS`).
const VALKEYMODULE_OPTIONS_HANDLE_ATOMIC_SLOT_MIGRATION: c_int = 1 << 5;

/// The module, for callbacks that are not handed it: `INFO` and a panic.
static LOADED: OnceLock<&Module> = OnceLock::new();
/// The [`command_id`] of the command that loaded the module.
static LOADED_BY: Mutex<Option<[u64; 2]>> = Mutex::new(None);

/// A module, as it is handed to [`module!`].
pub struct Module {
    /// The name in `MODULE LIST`.
    pub name: &'static CStr,
    /// Three numbers and the dots between them.
    pub version: &'static str,
    /// `version` as `MODULE LIST` shows it: 10203 is 1.2.3.
    pub version_number: c_int,
    pub commands: &'static [Command],
}

/// Makes the two functions by which the server loads and unloads a `static` [`Module`].
macro_rules! module {
    ($module:ident) => {
        /// Called by the server, Redis or Valkey, when it loads the module.
        ///
        /// # Safety
        /// `context` and the `count` strings at `arguments` are live.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "the server looks it up by this name")]
        pub unsafe extern "C" fn RedisModule_OnLoad(
            context: *mut ::redis_module::raw::RedisModuleCtx,
            arguments: *mut *mut ::redis_module::raw::RedisModuleString,
            count: ::std::ffi::c_int,
        ) -> ::std::ffi::c_int {
            // SAFETY: the server passes what `load` asks for.
            unsafe { $crate::redis::load(&$module, context, arguments, count) }
        }

        /// Called by the server before it unloads the module. An error keeps the module loaded.
        ///
        /// # Safety
        /// The module has loaded, and `context` is live.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "the server looks it up by this name")]
        pub unsafe extern "C" fn RedisModule_OnUnload(
            context: *mut ::redis_module::raw::RedisModuleCtx,
        ) -> ::std::ffi::c_int {
            // SAFETY: the server passes what `unload` asks for.
            unsafe { $crate::redis::unload(&$module, context) }
        }
    };
}
pub(crate) use module;

/// Registers the module's commands, or logs why it cannot keep its promises on this server.
///
/// # Safety
/// `context` and the `count` strings at `arguments` are live.
pub unsafe fn load(
    module: &'static Module,
    context: *mut raw::RedisModuleCtx,
    arguments: *mut *mut raw::RedisModuleString,
    count: c_int,
) -> c_int {
    let (name, version) = (module.name.as_ptr(), module.version_number);
    // SAFETY: the context is live. This is the first call into the API, and looks up all its other functions.
    let initialized = unsafe { raw::Export_RedisModule_Init(context, name, version, API_VERSION) };
    let context = Context(context);
    // The call fails only if the module's name is taken. All functions have been looked up by then: `log` works.
    if initialized != OK {
        let reason = "is loaded already, or another redis-cell is. Remove this load or the other: a loadmodule line in \
                      the server's settings or in a file that they include, a --loadmodule on its command line \
                      (systemctl cat shows a service's), a MODULE LOAD";
        log(&context, c"warning", format!("{module} {reason}"));
        return ERR;
    }
    // SAFETY: as promised by the caller; an `Argument` is a string pointer and nothing else.
    let argument = (count > 0).then(|| unsafe { &*arguments.cast::<Argument>() });
    if let Err(reason) = module.set_up(&context, argument) {
        log(&context, c"warning", format!("{module} {reason}"));
        return ERR;
    }
    log(&context, c"notice", format!("{module} is ready"));
    OK
}

/// Refuses an unload, because servers keep a pointer to each client's last command and follow it after an unload has
/// freed the command: on `CLIENT LIST`, and on Redis 8 at the client's next call.
///
/// Allows one unload: that by which the server takes a load back, as `MODULE LOADEX` does for settings that the module
/// does not know. The loading command is then still running, so no client has called yet; and Redis 8 would crash if
/// this unload were refused.
///
/// # Safety
/// The module has loaded, and `context` is live.
pub unsafe fn unload(module: &'static Module, context: *mut raw::RedisModuleCtx) -> c_int {
    let context = Context(context);
    let command = command_id(&context);
    let taken_back = command.is_some() && LOADED_BY.lock().is_ok_and(|loaded_by| *loaded_by == command);
    if !taken_back {
        let reason =
            "stays loaded until a restart: servers crash when a module goes whose commands clients have called";
        log(&context, c"warning", format!("{module} {reason}"));
        return ERR;
    }
    // SAFETY: the module has loaded, and the server calls nothing of it after this.
    unsafe { key::clean_up() }
    OK
}

impl Module {
    /// Does all that a load needs, or returns the reason why the module cannot be loaded.
    fn set_up(&'static self, context: &Context, argument: Option<&Argument>) -> Result<(), String> {
        check_functions()
            .map_err(|function| format!("needs Redis 6.2.8, 7.0.5 or Valkey 7.2 or later: {function} is missing"))?;
        if let Some(argument) = argument {
            return Err(format!("takes no arguments, but is given \"{}\"", argument.bytes().escape_ascii()));
        }
        let options = options();
        let forkless = options & key::HANDLE_FORKLESS != 0;
        // SET and DEL replicate writes. During a save without a fork, GET reads.
        for command in [c"SET", c"DEL"].into_iter().chain(forkless.then_some(c"GET")) {
            if !has_command(context, command) {
                return Err(format!(
                    "needs the command {}, which is renamed or disabled here: remove its rename-command from the \
                     settings",
                    command.to_string_lossy()
                ));
            }
        }
        LOADED.get_or_init(|| self);
        // Log where a panic began: a panic is a defect of the module, and ends the server, which then reports a crash.
        panic::set_hook(Box::new(|panic| {
            // The hook captures nothing, so that a failed load leaves no memory behind.
            if let Some(module) = LOADED.get() {
                log(&Context(ptr::null_mut()), c"warning", panic_line(module, panic));
            }
        }));
        for command in self.commands {
            if !command.register(context) {
                return Err(format!("could not register {:?}: is another redis-cell loaded?", command.name));
            }
        }
        // SAFETY: the context is live, `check_functions` has seen every function, and `info` is a callback for INFO.
        unsafe { api!(RedisModule_RegisterInfoFunc)(context.0, Some(info)) };
        // SAFETY: `check_functions` has seen every function.
        unsafe { key::prepare(context, options) }
        listeners::subscribe(context, forkless);
        if let Ok(mut loaded_by) = LOADED_BY.lock() {
            *loaded_by = command_id(context);
        }
        Ok(())
    }
}

impl std::fmt::Display for Module {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} {}", self.name.to_string_lossy(), self.version)
    }
}

/// Returns the options that the module sets on this server.
fn options() -> c_int {
    // A limited call must not look like a write to WATCH and client-side caches. The module keeps no state outside the
    // keyspace, so a replica's asynchronous loading and the move of a slot cannot harm it.
    let base = key::UNCHANGED_WHEN_CLOSED | raw::REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD.cast_signed();
    let of_valkey = VALKEYMODULE_OPTIONS_SKIP_COMMAND_VALIDATION
        | VALKEYMODULE_OPTIONS_HANDLE_ATOMIC_SLOT_MIGRATION
        | key::HANDLE_FORKLESS;
    // SAFETY: only `Export_RedisModule_Init` writes it; `None` on a server that lacks the function.
    let known = unsafe { raw::RedisModule_GetModuleOptionsAll.map_or(0, |all| all()) };
    if is_valkey() { base | (of_valkey & known) } else { base }
}

/// Tells whether the server is a Valkey: only Valkey has functions whose names begin with `ValkeyModule_`.
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

/// Tells whether the server has a command of this name: the operator may have renamed or disabled it.
fn has_command(context: &Context, name: &CStr) -> bool {
    // SAFETY: the context is live. The command needs arguments: without any, the server looks it up but does not run
    // it, and there is no reply to be freed.
    unsafe { api!(RedisModule_Call)(context.0, name.as_ptr(), c"".as_ptr()) };
    std::io::Error::last_os_error().raw_os_error() != Some(libc::ENOENT)
}

/// Returns two numbers that together identify the running command: the server's time, which is the same for all
/// commands of an EXEC, and the number of ended commands, which CONFIG RESETSTAT sets back. `None` if the server lacks
/// either.
fn command_id(context: &Context) -> Option<[u64; 2]> {
    let [time] = context.server_info(c"server", [c"server_time_usec"]);
    let [commands] = context.server_info(c"stats", [c"total_commands_processed"]);
    Some([time?, commands?])
}

fn log(context: &Context, level: &CStr, line: String) {
    // SAFETY: the context is live or null, and the format asks for the one string that it gets.
    unsafe {
        if let Some(log) = raw::RedisModule_Log {
            log(context.0, level.as_ptr(), c"%s".as_ptr(), c_string(line).as_ptr());
        }
    }
}

/// Writes the module's part of `INFO`: its version, and how the calls of each command ended.
///
/// # Safety
/// `info` is live.
unsafe extern "C" fn info(info: *mut raw::RedisModuleInfoCtx, _for_crash_report: c_int) {
    let Some(module) = LOADED.get() else { return };
    // SAFETY: `info` is live, and the server copies the strings.
    unsafe {
        api!(RedisModule_InfoAddSection)(info, ptr::null());
        let version = c_string(module.version.to_string());
        api!(RedisModule_InfoAddFieldCString)(info, c"version".as_ptr(), version.as_ptr());
        for command in module.commands {
            let name = command.name.to_string_lossy();
            let name = name.trim_start_matches("cl.");
            let counts = command.counts;
            let counters = [("allowed", &counts.allowed), ("limited", &counts.limited), ("errors", &counts.errors)];
            // Exporters read plain fields of one number each.
            for (outcome, counter) in counters {
                let field = c_string(format!("{name}_{outcome}"));
                api!(RedisModule_InfoAddFieldULongLong)(info, field.as_ptr(), counter.get());
            }
        }
    }
}

/// Formats a panic's place and message, in one line.
fn panic_line(module: &Module, panic: &PanicHookInfo) -> String {
    format!("{module} {panic}").replace('\n', " ")
}

#[cfg(test)]
#[allow(clippy::panic, clippy::unwrap_used, reason = "it is about panics")]
#[test]
fn a_panic_is_told_in_one_line_with_its_place() {
    static LINE: std::sync::Mutex<String> = std::sync::Mutex::new(String::new());
    static MODULE: Module = Module { name: c"name", version: "1.2.3", version_number: 10203, commands: &[] };
    panic::set_hook(Box::new(|panic| *LINE.lock().unwrap() = panic_line(&MODULE, panic)));
    panic::catch_unwind(|| panic!("two\nlines")).unwrap_err();
    drop(panic::take_hook());
    let line = LINE.lock().unwrap();
    assert!(line.starts_with("name 1.2.3 panicked at src/redis/module.rs:"), "{line}");
    assert!(line.ends_with(": two lines"), "{line}");
}
