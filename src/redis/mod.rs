//! A thin safe layer over the module API. Only this folder has `unsafe`, and it covers only the functions in use.
//!
//! The server runs one command at a time on one thread, and calls into the module only through `RedisModule_OnLoad`,
//! what is registered there, and `RedisModule_OnUnload`. Every SAFETY line here rests on that.
//!
//! Of the other files of the module, this folder uses only `decimal.rs`, for the digits of an expiry. It does not know
//! what the module does: it is handed the module's name, its commands, and what their calls need.

use std::ffi::c_int;

use redis_module::raw;

const OK: c_int = 0;
const ERR: c_int = 1;

/// Lists the functions of the API that the module calls. A load is refused on a server that lacks one.
macro_rules! required {
    ($($function:ident)*) => {
        /// Checks that the server has all functions of the list. Errors: the name of one that it lacks.
        fn check_functions() -> Result<(), &'static str> {
            $(
                // SAFETY: only `Export_RedisModule_Init` writes it, and it has returned.
                unsafe { raw::$function.ok_or(stringify!($function))? };
            )*
            Ok(())
        }

        /// Names a function of the list; any other does not compile. Use it only after `check_functions` has succeeded,
        /// which shows that the function is there.
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
pub use key::{Key, Unavailable, Value, look, make_room};
pub(crate) use module::module;
pub use module::{Module, load, unload};
