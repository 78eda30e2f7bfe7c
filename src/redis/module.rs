//! The module as a whole: how it is loaded, why it cannot be unloaded, and what it writes to `INFO`.

use std::ffi::{CStr, c_int};
use std::ptr;
use std::sync::{Mutex, OnceLock};

use redis_module::raw;

use super::context::c_string;
use super::{Argument, Command, Context, ERR, OK, check_functions, options, replication};

const API_VERSION: c_int = 1;

/// The loaded module, for the `INFO` callback, which does not receive it as an argument.
static LOADED: OnceLock<&Module> = OnceLock::new();
/// The [`command_id`] of the command that loaded the module.
static LOADED_BY: Mutex<[Option<u64>; 2]> = Mutex::new([None; 2]);

/// A module, for which [`module!`] defines the functions that the server calls.
pub struct Module {
    /// The module's name in `MODULE LIST`.
    name: &'static CStr,
    /// The version, as three numbers separated by dots.
    version: &'static str,
    commands: &'static [Command],
}

/// Defines the two functions that the server calls to load and unload a `static` [`Module`].
macro_rules! module {
    ($module:ident) => {
        /// Loads the module. The server, Redis or Valkey, calls this function.
        ///
        /// # Safety
        /// `context` and the `count` strings at `arguments` must be live.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "the server looks it up by this name")]
        pub unsafe extern "C" fn RedisModule_OnLoad(
            context: *mut ::redis_module::raw::RedisModuleCtx,
            arguments: *mut *mut ::redis_module::raw::RedisModuleString,
            count: ::std::ffi::c_int,
        ) -> ::std::ffi::c_int {
            // SAFETY: the server passes what `load` requires.
            unsafe { $crate::redis::load(&$module, context, arguments, count) }
        }

        /// Decides whether the module may be unloaded. The server calls this function before it unloads the module. If
        /// the function returns an error, the module stays loaded.
        ///
        /// # Safety
        /// The module must be loaded, and `context` must be live.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "the server looks it up by this name")]
        pub unsafe extern "C" fn RedisModule_OnUnload(
            context: *mut ::redis_module::raw::RedisModuleCtx,
        ) -> ::std::ffi::c_int {
            // SAFETY: the server passes what `unload` requires.
            unsafe { $crate::redis::unload(&$module, context) }
        }
    };
}
pub(crate) use module;

/// Loads the module and registers its commands, or logs why the module cannot be loaded on this server.
///
/// # Safety
/// `context` and the `count` strings at `arguments` must be live.
pub unsafe fn load(
    module: &'static Module,
    context: *mut raw::RedisModuleCtx,
    arguments: *mut *mut raw::RedisModuleString,
    count: c_int,
) -> c_int {
    let (name, version) = (module.name, module.version_number());
    // SAFETY: the context is live. This is the first call into the API, and it looks up all other functions.
    let initialized = unsafe { raw::Export_RedisModule_Init(context, name.as_ptr(), version, API_VERSION) };
    let context = Context(context);
    // Initialization fails only if the module's name is taken. By then, all functions have been looked up, so `log`
    // works.
    if initialized != OK {
        let reason = "Remove this load or the other: a loadmodule line in the server's settings or in a file that they \
                      include, a --loadmodule on its command line (systemctl cat shows a service's), a MODULE LOAD";
        let name = name.to_string_lossy();
        log(&context, c"warning", format!("{module} is loaded already, or another {name} is. {reason}"));
        return ERR;
    }
    // SAFETY: the caller promises that the strings are live, and an `Argument` is only a string pointer.
    let argument = (count > 0).then(|| unsafe { &*arguments.cast::<Argument>() });
    if let Err(reason) = module.set_up(&context, argument) {
        log(&context, c"warning", format!("{module} {reason}"));
        return ERR;
    }
    log(&context, c"notice", format!("{module} is ready"));
    OK
}

/// Refuses to unload the module. Servers keep a pointer to each client's last command, and follow this pointer even
/// after an unload has freed the command: in `CLIENT LIST` and, on Redis 8, at the client's next call.
///
/// The only unload that is allowed undoes a load, as `MODULE LOADEX` does if it is given settings that the module does
/// not know. The loading command is still running at that point, so no client has called the module yet. Redis 8 would
/// crash if this unload were refused.
///
/// # Safety
/// The module must be loaded, and `context` must be live.
pub unsafe fn unload(module: &'static Module, context: *mut raw::RedisModuleCtx) -> c_int {
    let context = Context(context);
    let taken_back = LOADED_BY.lock().is_ok_and(|loaded_by| *loaded_by == command_id(&context));
    if !taken_back {
        let reason =
            "stays loaded until a restart: servers crash after unloading a module whose commands clients have called";
        log(&context, c"warning", format!("{module} {reason}"));
        return ERR;
    }
    // SAFETY: the module is loaded, and the server calls nothing in it after the unload.
    unsafe { replication::clean_up() }
    OK
}

impl Module {
    pub const fn new(name: &'static CStr, version: &'static str, commands: &'static [Command]) -> Self {
        Self { name, version, commands }
    }

    /// Returns the version as `MODULE LIST` shows it: 10203 for 1.2.3.
    fn version_number(&self) -> c_int {
        let numbers = self.version.split('.').map(|number| number.parse().unwrap_or(0));
        numbers.fold(0, |version: c_int, number: c_int| version.wrapping_mul(100).wrapping_add(number))
    }

    /// Checks the server, registers the module, and sets its options. If that is not possible, returns the reason.
    fn set_up(&'static self, context: &Context, argument: Option<&Argument>) -> Result<(), String> {
        check_functions()
            .map_err(|function| format!("needs Redis 6.2.8, 7.0.5 or Valkey 7.2 or later: {function} is missing"))?;
        if let Some(argument) = argument {
            return Err(format!("takes no arguments, but is given \"{}\"", argument.bytes().escape_ascii()));
        }
        options::find();
        // The module replicates writes with SET and DEL, and reads with GET during a save without a fork.
        for command in [c"SET", c"DEL"].into_iter().chain(options::is_forkless().then_some(c"GET")) {
            if !has_command(context, command) {
                return Err(format!(
                    "needs the command {}, which is renamed or disabled here: remove its rename-command from the \
                     settings",
                    command.to_string_lossy()
                ));
            }
        }
        LOADED.get_or_init(|| self);
        for command in self.commands {
            if !command.register(context) {
                let name = self.name.to_string_lossy();
                return Err(format!("could not register {:?}: is another {name} loaded?", command.name));
            }
        }
        // SAFETY: the context is live, and `info` is a callback for INFO.
        unsafe { api!(RedisModule_RegisterInfoFunc)(context.0, Some(info)) };
        options::set(context);
        replication::prepare(context);
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

/// Returns whether the server has a command with this name. The operator may have renamed or disabled the command.
fn has_command(context: &Context, name: &CStr) -> bool {
    // SAFETY: the context is live. The command needs arguments: without any, the server looks it up but does not run
    // it, and there is no reply to free.
    unsafe { api!(RedisModule_Call)(context.0, name.as_ptr(), c"".as_ptr()) };
    std::io::Error::last_os_error().raw_os_error() != Some(libc::ENOENT)
}

/// Returns two numbers that together identify the running command: the server's time, which is the same for all
/// commands in an EXEC, and the number of commands processed. Every supported server reports both.
///
/// CONFIG RESETSTAT resets the second number. A transaction that resets it before loading the module, and again before
/// unloading it, can therefore unload the module. By then, no client can have called the module. Scripts and other
/// modules may have, but no server is known to crash after that.
fn command_id(context: &Context) -> [Option<u64>; 2] {
    let [time] = context.server_info(c"server", [c"server_time_usec"]);
    let [commands] = context.server_info(c"stats", [c"total_commands_processed"]);
    [time, commands]
}

fn log(context: &Context, level: &CStr, line: String) {
    // SAFETY: the context is live or null, and the format takes exactly the one string that is passed.
    unsafe {
        if let Some(log) = raw::RedisModule_Log {
            log(context.0, level.as_ptr(), c"%s".as_ptr(), c_string(line).as_ptr());
        }
    }
}

/// Writes the module's section of `INFO`: the version, and the counts of each command's calls by outcome.
///
/// # Safety
/// `info` must be live.
unsafe extern "C" fn info(info: *mut raw::RedisModuleInfoCtx, for_crash_report: c_int) {
    // Write nothing to a crash report: the crash may have left the allocator locked or broken, and a field's name has
    // to be allocated.
    if for_crash_report != 0 {
        return;
    }
    let Some(module) = LOADED.get() else { return };
    // SAFETY: `info` is live, and the server copies the strings.
    unsafe {
        api!(RedisModule_InfoAddSection)(info, ptr::null());
        let version = c_string(module.version.to_string());
        api!(RedisModule_InfoAddFieldCString)(info, c"version".as_ptr(), version.as_ptr());
        for command in module.commands {
            let name = command.name.to_string_lossy();
            // Leave out the command's `cl.` prefix: the server already puts the module's name before each field.
            let name = name.split_once('.').map_or(&*name, |(_, name)| name);
            let counts = command.counts;
            let counters = [("allowed", &counts.allowed), ("limited", &counts.limited), ("errors", &counts.errors)];
            // Write one field per number, because metrics exporters can read only fields that hold a single number.
            for (outcome, counter) in counters {
                let field = c_string(format!("{name}_{outcome}"));
                api!(RedisModule_InfoAddFieldULongLong)(info, field.as_ptr(), counter.get());
            }
        }
    }
}
