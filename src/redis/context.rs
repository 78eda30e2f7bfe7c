//! The context of one call, through which a command replies, sends notifications and queries the server.

use std::ffi::{CStr, CString, c_long};

use redis_module::raw;

use super::{Argument, OK};

/// The server's context for one call.
pub struct Context(pub(super) *mut raw::RedisModuleCtx);

/// An error reply.
pub enum ErrorReply {
    /// The server's own error for a wrong number of arguments.
    WrongArity,
    /// A text that begins with the error code.
    Text(String),
}

impl Context {
    /// Begins an array reply, which `length` elements must follow.
    pub fn reply_array(&self, length: usize) {
        let length = length.try_into().unwrap_or(c_long::MAX);
        // SAFETY: the context is live.
        unsafe { api!(RedisModule_ReplyWithArray)(self.0, length) };
    }

    pub fn reply_integer(&self, integer: i64) {
        // SAFETY: the context is live.
        unsafe { api!(RedisModule_ReplyWithLongLong)(self.0, integer) };
    }

    #[cold]
    pub(super) fn reply_error(&self, error: ErrorReply) {
        // SAFETY: the context is live, and the server copies the text.
        unsafe {
            match error {
                ErrorReply::WrongArity => api!(RedisModule_WrongArity)(self.0),
                ErrorReply::Text(text) => api!(RedisModule_ReplyWithError)(self.0, c_string(text).as_ptr()),
            };
        }
    }

    /// Sends a keyspace notification about the key `name` to other modules and to clients, if `notify-keyspace-events`
    /// includes the class `d`.
    pub fn notify(&self, event: &CStr, name: &Argument) {
        // SAFETY: the context and the name are live, and the server copies the event's name.
        unsafe {
            // Check the setting first: it is usually off, and checking it costs less than sending a notification that
            // the server drops.
            if api!(RedisModule_GetNotifyKeyspaceEvents)() & raw::REDISMODULE_NOTIFY_MODULE != 0 {
                api!(RedisModule_NotifyKeyspaceEvent)(self.0, raw::REDISMODULE_NOTIFY_MODULE, event.as_ptr(), name.0);
            }
        }
    }

    /// Reads numbers from a section of `INFO`. A field that is missing or is not a number is returned as `None`.
    pub(super) fn server_info<const N: usize>(&self, section: &CStr, fields: [&CStr; N]) -> [Option<u64>; N] {
        // SAFETY: the context is live, and so is the information until it is freed.
        unsafe {
            let info = api!(RedisModule_GetServerInfo)(self.0, section.as_ptr());
            let numbers = fields.map(|field| {
                let mut error = 0;
                let number = api!(RedisModule_ServerInfoGetFieldUnsigned)(info, field.as_ptr(), &mut error);
                (error == OK).then_some(number)
            });
            api!(RedisModule_FreeServerInfo)(self.0, info);
            numbers
        }
    }
}

/// Converts one of the module's own texts, which contain no NUL, to a C string.
pub(super) fn c_string(text: String) -> CString {
    CString::new(text).unwrap_or_default()
}
