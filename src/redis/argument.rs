//! An argument of a call: its bytes, or its value as an integer.

use std::ffi::c_longlong;
use std::slice;

use redis_module::raw;

use super::OK;

/// An argument of a call: one of the words after the command's name.
#[repr(transparent)]
pub struct Argument(pub(super) *mut raw::RedisModuleString);

impl Argument {
    pub fn bytes(&self) -> &[u8] {
        let mut length = 0;
        // SAFETY: the string is live, and the server does not change a call's arguments.
        unsafe {
            let bytes = api!(RedisModule_StringPtrLen)(self.0, &mut length);
            slice::from_raw_parts(bytes.cast(), length)
        }
    }

    /// Parses the argument as the server would. Returns `None` if the argument is not a 64-bit integer.
    pub fn integer(&self) -> Option<i64> {
        let mut integer: c_longlong = 0;
        // SAFETY: the string is live, and the server writes `integer` before the call returns.
        let status = unsafe { api!(RedisModule_StringToLongLong)(self.0, &mut integer) };
        (status == OK).then_some(integer)
    }
}
