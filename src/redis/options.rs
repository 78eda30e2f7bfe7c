//! The options that the module sets on each server.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

use redis_module::raw;

use super::{Context, OK};

/// Stops the server from marking a key as changed when it is closed. WATCH and client-side caches must not take a call
/// that changes nothing for a write.
pub const UNCHANGED_WHEN_CLOSED: c_int = raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED.cast_signed();
/// Allows a replica to load its data asynchronously, because the module keeps no state outside the keyspace.
const ASYNC_LOADING: c_int = raw::REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD.cast_signed();

// The options below are defined in valkeymodule.h.

/// Lets Valkey 8.1 and later replicate SET and DEL without checking that these commands exist. The module checks that
/// when it is loaded.
const SKIP_COMMAND_VALIDATION: c_int = 1 << 4;
/// Allows Valkey 9 to migrate slots itself (`CLUSTER MIGRATESLOTS`), which it refuses if a module lacks this option.
const ATOMIC_SLOT_MIGRATION: c_int = 1 << 5;
/// Allows Valkey 9.2 to save without a fork. A module that sets this option promises that its calls cope with a key
/// that cannot be opened for writing. (The saving thread would also save values of the module's own types, but this
/// module has none.)
const FORKLESS: c_int = 1 << 6;

/// The options for this server, determined when the module is loaded.
static OPTIONS: AtomicI32 = AtomicI32::new(0);

/// Determines the options for this server. They take effect when [`set`] is called.
pub fn find() {
    // SAFETY: only `Export_RedisModule_Init` writes this pointer. It is `None` on a server that lacks the function.
    let known = unsafe { raw::RedisModule_GetModuleOptionsAll.map_or(0, |all| all()) };
    let of_valkey = (SKIP_COMMAND_VALIDATION | ATOMIC_SLOT_MIGRATION | FORKLESS) & known;
    let options = UNCHANGED_WHEN_CLOSED | ASYNC_LOADING | if is_valkey() { of_valkey } else { 0 };
    OPTIONS.store(options, Relaxed);
}

pub fn set(context: &Context) {
    set_all_but(context, 0);
}

/// Sets all options except `left_out`, until [`set`] is called again.
pub fn set_all_but(context: &Context, left_out: c_int) {
    // SAFETY: the context is live.
    unsafe { api!(RedisModule_SetModuleOptions)(context.0, OPTIONS.load(Relaxed) & !left_out) };
}

/// Returns whether the server may save without a fork.
pub fn is_forkless() -> bool {
    OPTIONS.load(Relaxed) & FORKLESS != 0
}

/// Returns whether the server is Valkey: only Valkey has functions whose names begin with `ValkeyModule_`.
fn is_valkey() -> bool {
    let mut function: *mut c_void = ptr::null_mut();
    // SAFETY: `Export_RedisModule_Init` has set `RedisModule_GetApi`, which writes one pointer, to `function`.
    unsafe {
        raw::RedisModule_GetApi.is_some_and(|get_api| {
            let name = c"ValkeyModule_SetModuleOptions";
            get_api(name.as_ptr(), (&raw mut function).cast()) == OK
        })
    }
}
