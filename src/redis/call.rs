//! What a command may use: the call's context, arguments, keys and replies, and the clock.

use std::ffi::{CStr, c_char, c_int, c_long, c_longlong};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};
use std::{ptr, slice};

use redis_module::raw;

use super::{Context, OK, c_string, listeners};

const READ: c_int = 1 << 0;
const WRITE: c_int = 1 << 1;
const KEYTYPE_EMPTY: c_int = 0;

/// The word `PXAT`, which every allowed call replicates: one string for as long as the module is loaded.
static PXAT: AtomicPtr<raw::RedisModuleString> = AtomicPtr::new(ptr::null_mut());

/// The module's options, under which a key that is closed counts as unchanged.
static OPTIONS: AtomicI32 = AtomicI32::new(0);

/// An error as the client is told it.
pub enum ErrorReply {
    /// The server words it, as for its own commands.
    WrongArity,
    /// The error's code first.
    Text(String),
}

/// The system's wall clock, in nanoseconds since the Unix epoch: 0 to 2^63 - 1. One that stands outside counts as
/// standing there.
pub fn now() -> u64 {
    /// With any fraction it is still in 63 bits of nanoseconds.
    const LAST_SECOND: i64 = i64::MAX / 1_000_000_000 - 1;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: this writes `time`, and fails only for a clock that does not exist.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &mut time) };
    // To ask first costs less than to clamp what hardly ever needs it.
    let inside = (0..=LAST_SECOND).contains(&time.tv_sec);
    let seconds = if inside { time.tv_sec } else { time.tv_sec.clamp(0, LAST_SECOND) }.cast_unsigned();
    seconds.wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec.cast_unsigned())
}

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
}

/// An argument of a call, the command's own name being the first.
#[repr(transparent)]
pub struct Argument(*mut raw::RedisModuleString);

impl Argument {
    pub fn bytes(&self) -> &[u8] {
        let mut length = MaybeUninit::uninit();
        // SAFETY: the string is live, and the server does not change a call's arguments. It always writes the length.
        unsafe {
            let bytes = api!(RedisModule_StringPtrLen)(self.0, length.as_mut_ptr());
            slice::from_raw_parts(bytes.cast(), length.assume_init())
        }
    }

    /// The integer that it spells, by the server's own rules: none if it is not one or not in 64 bits.
    pub fn integer(&self) -> Option<i64> {
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
        // SAFETY: the handle is open. The bytes stay as they are until the key is written, which takes `self`.
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
    /// effect, in the AOF and on replicas, which are told in `digits`.
    #[inline(always)]
    pub fn set<D: AsRef<[u8]>>(self, bytes: &[u8], expire_at: u64, digits: impl FnOnce() -> D) {
        // SAFETY: the handle is open for writing. The buffer, null where the key holds another type, has the length of the bytes,
        // and nobody else holds it. The strings live until the server has copied or retained them.
        unsafe {
            let mut length = 0;
            let buffer = api!(RedisModule_StringDMA)(self.handle, &mut length, WRITE);
            let mut string = ptr::null_mut();
            if !buffer.is_null() && length == bytes.len() {
                ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.cast(), length);
            } else {
                string = new_string(bytes);
                let keys = api!(RedisModule_DbSize)(self.context.0);
                api!(RedisModule_StringSet)(self.handle, string);
                if api!(RedisModule_DbSize)(self.context.0) <= keys {
                    // Valkey 9 sets no key that the handle does not know and that is there all the same: it had expired when
                    // it was opened, and then other modules' code made it anew. To expire it tells the handle of it.
                    api!(RedisModule_SetAbsExpire)(self.handle, expire_at.cast_signed());
                    api!(RedisModule_StringSet)(self.handle, string);
                }
            }
            api!(RedisModule_SetAbsExpire)(self.handle, expire_at.cast_signed());
            if listeners::anybody(self.context) {
                if string.is_null() {
                    string = new_string(bytes);
                }
                let expiry = digits();
                let expiry = expiry.as_ref();
                api!(RedisModule_Replicate)(
                    self.context.0,
                    c"SET".as_ptr(),
                    c"sssb".as_ptr(),
                    self.name.0,
                    string,
                    PXAT.load(Ordering::Relaxed),
                    expiry.as_ptr().cast::<c_char>(),
                    expiry.len(),
                );
            } else {
                // Counts a write, for the server's save points, and is heard by nobody.
                api!(RedisModule_ReplicateVerbatim)(self.context.0);
            }
            if !string.is_null() {
                free_string(string);
            }
        }
        self.close_changed();
    }

    /// Deletes the key, here and, as that very effect, in the AOF and on replicas.
    #[inline(always)]
    pub fn delete(self) {
        // SAFETY: the handle is open for writing, and context and name are live.
        unsafe {
            api!(RedisModule_DeleteKey)(self.handle);
            if listeners::anybody(self.context) {
                api!(RedisModule_Replicate)(self.context.0, c"DEL".as_ptr(), c"s".as_ptr(), self.name.0);
            } else {
                api!(RedisModule_ReplicateVerbatim)(self.context.0);
            }
        }
        self.close_changed();
    }

    /// Closes the key, and tells WATCH and client-side caches of its change. `RedisModule_SignalModifiedKey` would do
    /// as well, but has Redis 8.6 look the key up again, for a tenth of a call.
    #[inline(always)]
    fn close_changed(self) {
        let context = self.context.0;
        // SAFETY: the context is live, and nothing but closing looks at the options meanwhile.
        unsafe {
            api!(RedisModule_SetModuleOptions)(context, 0);
            drop(self);
            api!(RedisModule_SetModuleOptions)(context, OPTIONS.load(Ordering::Relaxed));
        }
    }
}

impl Drop for Key<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle is open and is not used again.
        unsafe { api!(RedisModule_CloseKey)(self.handle) }
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

/// Makes what calls use and no call owns, when the module loads: under these options, a key that is closed counts as
/// unchanged.
///
/// # Safety
/// The module has seen every function of the API.
pub(super) unsafe fn prepare(context: &Context, options: c_int) {
    // SAFETY: as promised by the caller; the context is live.
    unsafe {
        api!(RedisModule_SetModuleOptions)(context.0, options);
        PXAT.store(new_string(b"PXAT"), Ordering::Relaxed);
    }
    OPTIONS.store(options, Ordering::Relaxed);
}

/// Frees what `prepare` has made.
///
/// # Safety
/// `prepare` has been called, and no call comes any more.
pub(super) unsafe fn clean_up() {
    // SAFETY: the string is from `new_string`, and nobody uses it any more.
    unsafe { free_string(PXAT.swap(ptr::null_mut(), Ordering::Relaxed)) }
}
