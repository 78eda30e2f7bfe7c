//! The options that this module sets on each server, and what follows from them.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

use redis_module::raw;

use super::{Context, OK};

/// Closing a key does not mark it as changed: to WATCH and client-side caches, a call that changes nothing must not
/// look like a write.
pub const UNCHANGED_WHEN_CLOSED: c_int = raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED.cast_signed();
/// A replica that loads asynchronously cannot harm a module that keeps no state outside the keyspace.
const ASYNC_LOADING: c_int = raw::REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD.cast_signed();

// Options of valkeymodule.h.

/// Valkey 8.1 and newer replicate SET and DEL without checking that they exist: the load has checked it.
const SKIP_COMMAND_VALIDATION: c_int = 1 << 4;
/// Valkey 9 migrates slots itself (`CLUSTER MIGRATESLOTS`), and refuses to without this option.
const ATOMIC_SLOT_MIGRATION: c_int = 1 << 5;
/// Valkey 9.2 may save without a fork. A module that sets the option promises that its calls cope with a key that
/// cannot be opened for writing. (A thread would also save the values of the module's own types, but it has none.)
const FORKLESS: c_int = 1 << 6;

/// The options of this server, from the load on.
static OPTIONS: AtomicI32 = AtomicI32::new(0);

/// Finds out which options this server knows. They take effect with [`set`].
pub fn find() {
    // SAFETY: only `Export_RedisModule_Init` writes it; `None` on a server that lacks the function.
    let known = unsafe { raw::RedisModule_GetModuleOptionsAll.map_or(0, |all| all()) };
    let of_valkey = (SKIP_COMMAND_VALIDATION | ATOMIC_SLOT_MIGRATION | FORKLESS) & known;
    let options = UNCHANGED_WHEN_CLOSED | ASYNC_LOADING | if is_valkey() { of_valkey } else { 0 };
    OPTIONS.store(options, Relaxed);
}

pub fn set(context: &Context) {
    set_all_but(context, 0);
}

/// Sets all options but these, until they are [`set`] again.
pub fn set_all_but(context: &Context, left_out: c_int) {
    // SAFETY: the context is live.
    unsafe { api!(RedisModule_SetModuleOptions)(context.0, OPTIONS.load(Relaxed) & !left_out) };
}

/// Tells whether the server may save without a fork.
pub fn is_forkless() -> bool {
    OPTIONS.load(Relaxed) & FORKLESS != 0
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
