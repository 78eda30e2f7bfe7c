//! A thin safe layer over the module API. Only this folder has `unsafe`, and it covers only the functions in use.
//!
//! The server runs one command at a time on one thread, and calls into the module only through `RedisModule_OnLoad`,
//! what is registered there, and `RedisModule_OnUnload`. Every SAFETY line here rests on that.
//!
//! This folder uses two other files of the module: `decimal.rs` for the digits of an expiry, and `counts.rs` for the
//! counts in INFO. Both know no server and use no other file.

use std::ffi::c_int;

use redis_module::raw;

const OK: c_int = 0;
const ERR: c_int = 1;

/// Lists the functions of the API that the module calls; [`api!`] takes no other. A load copies them, and is refused on
/// a server that lacks one. A call of redis-module's own variable would take an instruction more: a table of the linker
/// stands in between.
macro_rules! required {
    ($($function:ident)*) => {
        #[allow(non_upper_case_globals, reason = "named as in the API")]
        mod required {
            $(pub static mut $function: *const () = std::ptr::null();)*
        }

        /// Copies the functions. Errors: the name of one that the server lacks.
        fn copy_functions() -> Result<(), &'static str> {
            $(
                // SAFETY: `Export_RedisModule_Init` has written the one, and nothing reads the other yet.
                unsafe { required::$function = raw::$function.ok_or(stringify!($function))? as *const () };
            )*
            Ok(())
        }
    };
}

required! {
    RedisModule_AvoidReplicaTraffic
    RedisModule_Call
    RedisModule_CallReplyStringPtr
    RedisModule_CallReplyType
    RedisModule_CloseKey
    RedisModule_CreateCommand
    RedisModule_CreateString
    RedisModule_DeleteKey
    RedisModule_FreeCallReply
    RedisModule_FreeServerInfo
    RedisModule_FreeString
    RedisModule_GetContextFlags
    RedisModule_GetNotifyKeyspaceEvents
    RedisModule_GetServerInfo
    RedisModule_InfoAddFieldCString
    RedisModule_InfoAddFieldULongLong
    RedisModule_InfoAddSection
    RedisModule_KeyType
    RedisModule_NotifyKeyspaceEvent
    RedisModule_OpenKey
    RedisModule_RegisterInfoFunc
    RedisModule_Replicate
    RedisModule_ReplicateVerbatim
    RedisModule_ReplyWithArray
    RedisModule_ReplyWithError
    RedisModule_ReplyWithLongLong
    RedisModule_ServerInfoGetFieldUnsigned
    RedisModule_SetAbsExpire
    RedisModule_SetModuleOptions
    RedisModule_StringDMA
    RedisModule_StringPtrLen
    RedisModule_StringToLongLong
    RedisModule_StringTruncate
    RedisModule_SubscribeToServerEvent
    RedisModule_WrongArity
}

/// Names a function of the API. Use it only after the module has loaded: the function is then known to be there.
macro_rules! api {
    ($function:ident) => {
        $crate::redis::typed(|| ::redis_module::raw::$function, $crate::redis::required::$function)
    };
}

/// Gives a copied function the type of the variable that it was copied from.
///
/// # Safety
/// `copy_functions` has copied it from the variable that `from` returns.
#[inline(always)]
unsafe fn typed<F>(_from: impl Fn() -> Option<F>, function: *const ()) -> F {
    // SAFETY: as promised by the caller. `F` is the type of a function's pointer, which has the size of any pointer.
    unsafe { std::mem::transmute_copy(&function) }
}

mod argument;
mod clock;
mod command;
mod context;
mod description;
mod key;
mod listeners;
mod module;

pub use argument::Argument;
pub(crate) use command::command;
pub use command::{Access, Command, begin, end};
pub use context::{Context, ErrorReply};
pub use description::Parameter;
pub use key::{Key, Unavailable, Value, WritableKey, delete_expired, peek};
pub(crate) use module::module;
pub use module::{Module, load, unload};
