//! What a command may use: the call's context, arguments, keys and replies, and the clock.

use std::ffi::{CStr, c_char, c_int, c_long, c_longlong};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};
use std::{ptr, slice};

use redis_module::raw;

use super::{Context, OK, c_string, listeners};
use crate::decimal;

const READ: c_int = 1 << 0;
const WRITE: c_int = 1 << 1;
const KEYTYPE_EMPTY: c_int = 0;

/// The option under which closing a key does not mark it as changed.
pub(super) const UNCHANGED_WHEN_CLOSED: c_int = raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED.cast_signed();

/// The word `PXAT`, which every allowed call replicates: one string for as long as the module is loaded.
static PXAT: AtomicPtr<raw::RedisModuleString> = AtomicPtr::new(ptr::null_mut());

/// The module's options, with `UNCHANGED_WHEN_CLOSED`.
static OPTIONS: AtomicI32 = AtomicI32::new(0);

/// An error as it is sent to the client.
pub enum ErrorReply {
    /// In the server's own words.
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
    let seconds = time.tv_sec.clamp(0, LAST_SECOND).cast_unsigned();
    let nanos = time.tv_nsec.clamp(0, 999_999_999).cast_unsigned();
    seconds.wrapping_mul(1_000_000_000).wrapping_add(nanos)
}

impl Context {
    /// Opens the key `name` for reading and writing, whether it exists or not. None if the server does not let the key
    /// be written now, as a Valkey that saves without a fork may do.
    #[inline(always)]
    pub fn open_key<'a>(&'a self, name: &'a Argument) -> Option<WritableKey<'a>> {
        // SAFETY: context and name are live, as their borrows show.
        let handle = unsafe { api!(RedisModule_OpenKey)(self.0, name.0, READ | WRITE) };
        let key = Key { handle: NonNull::new(handle)?, open: PhantomData };
        Some(WritableKey { key, context: self, name })
    }

    /// Opens the key `name` for reading; none if there is no such key.
    #[inline(always)]
    pub fn open_key_to_read(&self, name: &Argument) -> Option<Key<'_>> {
        // SAFETY: context and name are live, as their borrows show.
        let handle = unsafe { api!(RedisModule_OpenKey)(self.0, name.0, READ) };
        Some(Key { handle: NonNull::new(handle)?, open: PhantomData })
    }

    /// Whether writes are paused, by `CLIENT PAUSE` or for a failover: calls within a transaction may still come.
    #[inline(always)]
    pub fn are_writes_paused(&self) -> bool {
        // SAFETY: this looks at the server's state alone.
        unsafe { api!(RedisModule_AvoidReplicaTraffic)() != 0 }
    }

    /// Deletes the key if it has expired and the server keeps it, as it does while writes are paused. Call this for a key
    /// that reads as absent, before a new one is made in its place: the server ends at a second key of the same name.
    /// The DEL is replicated (`!`), as is what another module writes in its handler of the deletion. No handle may stand
    /// for a key meanwhile, as the handler may delete it.
    ///
    /// None if the server refuses the DEL: a cluster node, in whose transaction the slot has gone or has begun to move.
    #[inline(always)]
    #[must_use]
    pub fn delete_expired(&self, name: &Argument) -> Option<()> {
        if !self.are_writes_paused() {
            return Some(());
        }
        // SAFETY: context and name are live, and the reply, if there is one, is freed.
        unsafe {
            let reply = api!(RedisModule_Call)(self.0, c"DEL".as_ptr(), c"!s".as_ptr(), name.0);
            api!(RedisModule_FreeCallReply)(NonNull::new(reply)?.as_ptr());
        }
        Some(())
    }

    /// Whether a write of this call has to be replicated as its effect. If not, the write is counted here, for the
    /// server's save points.
    #[inline(always)]
    fn must_replicate(&self) -> bool {
        let listened = listeners::any(self);
        if !listened {
            // SAFETY: the context is live. As nothing listens, the server drops the call that it is asked to replicate.
            unsafe { api!(RedisModule_ReplicateVerbatim)(self.0) };
        }
        listened
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

    /// Sends a keyspace notification about `key` to other modules and to clients, where `notify-keyspace-events` has
    /// the class `d`. Close every key first: the notification may run another module's callback, which may delete it.
    pub fn notify(&self, event: &CStr, key: &Argument) {
        // SAFETY: context and key are live, and the server copies the event's name.
        unsafe {
            // The setting is usually off, and reading it costs less than a notification that goes nowhere.
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

    /// The integer that it spells, by the server's own rules; none if it is no integer or does not fit in 64 bits.
    pub fn integer(&self) -> Option<i64> {
        let mut integer: c_longlong = 0;
        // SAFETY: the string is live, and `integer` is written before this returns.
        let status = unsafe { api!(RedisModule_StringToLongLong)(self.0, &mut integer) };
        (status == OK).then_some(integer)
    }
}

/// A key open for reading, closed when dropped.
pub struct Key<'a> {
    handle: NonNull<raw::RedisModuleKey>,
    open: PhantomData<&'a Context>,
}

/// A key open for reading and writing, closed when dropped.
pub struct WritableKey<'a> {
    key: Key<'a>,
    context: &'a Context,
    name: &'a Argument,
}

/// What a key holds.
pub enum Value<'a> {
    Absent,
    String(&'a [u8]),
    OtherType,
}

impl Key<'_> {
    #[inline(always)]
    pub fn value(&self) -> Value<'_> {
        let mut length = 0;
        // SAFETY: the handle is open. The bytes stay as they are until the key is written, which takes the key.
        unsafe {
            let bytes = api!(RedisModule_StringDMA)(self.handle.as_ptr(), &mut length, READ);
            if bytes.is_null() {
                return Value::OtherType;
            }
            // A key that does not exist reads as an empty string.
            if length == 0 && api!(RedisModule_KeyType)(self.handle.as_ptr()) == KEYTYPE_EMPTY {
                return Value::Absent;
            }
            Value::String(slice::from_raw_parts(bytes.cast(), length))
        }
    }
}

impl<'a> Deref for WritableKey<'a> {
    type Target = Key<'a>;

    fn deref(&self) -> &Key<'a> {
        &self.key
    }
}

impl WritableKey<'_> {
    /// Makes the key a string of these bytes that expires at `expire_at` ms since the epoch: stores it here, replicates
    /// exactly that to the AOF and to replicas, and closes the key. None, and nothing changed, if the server does not
    /// let the key be written now: see [`Context::delete_expired`].
    #[inline(always)]
    #[must_use]
    pub fn set(self, bytes: &[u8], expire_at: u64) -> Option<()> {
        self.store(bytes, expire_at)?;
        if self.context.must_replicate() {
            self.replicate_set(bytes, expire_at);
        }
        self.close_changed();
        Some(())
    }

    /// Deletes the key here, in the AOF and on replicas, and closes it.
    #[inline(always)]
    pub fn delete(self) {
        // SAFETY: the handle is open for writing, and context and name are live.
        unsafe {
            api!(RedisModule_DeleteKey)(self.handle.as_ptr());
            if self.context.must_replicate() {
                api!(RedisModule_Replicate)(self.context.0, c"DEL".as_ptr(), c"s".as_ptr(), self.name.0);
            }
        }
        self.close_changed();
    }

    /// Sets the expiry before it looks at the buffer: on Valkey from 8.1 and Redis from 8.2, only that makes the handle
    /// the key's own again. Until then, it may stand for a value that another module's callback has replaced.
    #[inline(always)]
    fn store(&self, bytes: &[u8], expire_at: u64) -> Option<()> {
        let handle = self.handle.as_ptr();
        let expire_at = expire_at.cast_signed();
        // SAFETY: the handle is open for writing. The buffer is null or has `length` bytes, and nothing else holds it.
        unsafe {
            if api!(RedisModule_SetAbsExpire)(handle, expire_at) != OK {
                // No key: it is made as a string of this length, which the next call need not convert.
                self.context.delete_expired(self.name)?;
                api!(RedisModule_StringTruncate)(handle, bytes.len());
                api!(RedisModule_SetAbsExpire)(handle, expire_at);
            }
            let mut length = 0;
            let buffer = api!(RedisModule_StringDMA)(handle, &mut length, WRITE);
            if !buffer.is_null() && length == bytes.len() {
                ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.cast(), length);
            } else {
                // Another type or another length, which another module's callback has left since the key was read.
                let string = new_string(bytes);
                api!(RedisModule_StringSet)(handle, string);
                free_string(string);
                api!(RedisModule_SetAbsExpire)(handle, expire_at);
            }
        }
        Some(())
    }

    #[inline(always)]
    fn replicate_set(&self, bytes: &[u8], expire_at: u64) {
        let expire_at = decimal::Trimmed::new(expire_at);
        let expire_at = expire_at.as_ref();
        // SAFETY: context, name and `PXAT` are live, and the server copies the bytes.
        unsafe {
            api!(RedisModule_Replicate)(
                self.context.0,
                c"SET".as_ptr(),
                c"sbsb".as_ptr(),
                self.name.0,
                bytes.as_ptr().cast::<c_char>(),
                bytes.len(),
                PXAT.load(Ordering::Relaxed),
                expire_at.as_ptr().cast::<c_char>(),
                expire_at.len(),
            );
        }
    }

    /// Closes the key, and tells WATCH and client-side caches of its change. `RedisModule_SignalModifiedKey` would do
    /// as well, but has Redis 8.6 look the key up again, for a tenth of a call.
    #[inline(always)]
    fn close_changed(self) {
        let context = self.context.0;
        let options = OPTIONS.load(Ordering::Relaxed);
        // SAFETY: the context is live, and nothing but closing looks at the options meanwhile.
        unsafe {
            api!(RedisModule_SetModuleOptions)(context, options & !UNCHANGED_WHEN_CLOSED);
            drop(self);
            api!(RedisModule_SetModuleOptions)(context, options);
        }
    }
}

impl Drop for Key<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the handle is open and is not used again.
        unsafe { api!(RedisModule_CloseKey)(self.handle.as_ptr()) }
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
    // SAFETY: as promised by the caller. A key that holds the string has retained it.
    unsafe { api!(RedisModule_FreeString)(ptr::null_mut(), string) }
}

/// Sets the module's options, and makes what calls share, when the module loads.
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
    // SAFETY: the string is from `new_string`, and no call uses it any more.
    unsafe { free_string(PXAT.swap(ptr::null_mut(), Ordering::Relaxed)) }
}
