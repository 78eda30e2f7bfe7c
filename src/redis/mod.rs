//! A thin, safe layer over the functions of the server's module API. Only this folder contains `unsafe` code.
//!
//! Every SAFETY comment in this folder relies on two facts. First, the server runs one command at a time on one thread,
//! and calls into the module only through `RedisModule_OnLoad`, the callbacks registered there, and
//! `RedisModule_OnUnload`. Second, every function that `api!` returns exists: before a load registers anything, it
//! calls `check_functions`, and fails if a function is missing.
//!
//! Of the module's other files, this folder uses only `decimal.rs`, to format an expiry. The layer does not know what
//! the module does: other files pass it the module's name, its commands, and the data of each call.

use std::ffi::c_int;

use redis_module::raw;

const OK: c_int = 0;
const ERR: c_int = 1;

/// Lists the API functions that the module requires. It refuses to load on a server that lacks any of them.
macro_rules! required {
    ($($function:ident)*) => {
        /// Checks that the server has all functions in the list. The error is the name of a missing function.
        fn check_functions() -> Result<(), &'static str> {
            $(
                // SAFETY: only `Export_RedisModule_Init` writes this pointer, and it has returned.
                unsafe { raw::$function.ok_or(stringify!($function))? };
            )*
            Ok(())
        }

        /// Returns a function from the list. Any other name does not compile.
        macro_rules! api {
            $(($function) => { ::redis_module::raw::$function.unwrap_unchecked() };)*
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

mod argument;
pub mod clock;
mod command;
mod context;
pub mod counts;
mod description;
mod key;
mod module;
mod options;
mod replication;

pub use argument::Argument;
pub(crate) use command::command;
pub use command::{Access, Command, begin, end};
pub use context::{Context, ErrorReply};
pub use counts::Outcome;
pub use description::Parameter;
pub use key::{Key, Unavailable, Value, delete_expired, look};
pub(crate) use module::module;
pub use module::{Module, load, unload};
