//! A key of the server: opening, reading, writing and closing it, and replicating its change.

use std::ffi::{c_char, c_int};
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};
use std::{ptr, slice};

use redis_module::raw;

use super::{Argument, Context, OK, listeners};
use crate::decimal;

const READ: c_int = 1 << 0;
const WRITE: c_int = 1 << 1;
const KEYTYPE_EMPTY: c_int = 0;
const REPLY_STRING: c_int = 0;
const REPLY_NULL: c_int = 4;

/// The option under which closing a key does not mark it as changed.
pub(super) const UNCHANGED_WHEN_CLOSED: c_int = raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED.cast_signed();

/// The option of valkeymodule.h without which Valkey 9.2 never saves without a fork. A module that sets it promises
/// that its calls cope with a key that cannot be opened for writing. (A thread would also save the values of the
/// module's own types, but this module has none.)
pub(super) const HANDLE_FORKLESS: c_int = 1 << 6;

/// The word `PXAT` of each replicated SET: one string, made when the module is loaded.
static PXAT: AtomicPtr<raw::RedisModuleString> = AtomicPtr::new(ptr::null_mut());

/// The options that the module sets when it loads. Closing a changed key leaves `UNCHANGED_WHEN_CLOSED` out for a
/// moment.
static OPTIONS: AtomicI32 = AtomicI32::new(0);

/// A key, open for reading. Dropping it closes it.
pub struct Key<'a> {
    handle: NonNull<raw::RedisModuleKey>,
    open: PhantomData<&'a Context>,
}

/// A key, open for reading and writing. Dropping it closes it.
pub struct WritableKey<'a> {
    key: Key<'a>,
    context: &'a Context,
    name: &'a Argument,
}

/// The value of a key.
#[derive(Clone, Copy)]
pub enum Value<'a> {
    Absent,
    String(&'a [u8]),
    OtherType,
}

/// The refusal of the server to let a key be read or written now. Nothing has changed, but for one case that
/// [`WritableKey::set`] names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the key cannot be read or written at this moment")]
pub struct Unavailable;

/// Hands `read` the value of the key `name`, which stays as it is.
///
/// Reading through a handle may change the value's encoding, which crashes a Valkey that is saving the value without a
/// fork. On a server that may save in this way, `peek` opens the key for writing: the server refuses that during the
/// save, and GET then copies the value.
///
/// Errors: a cluster node refuses the GET if the slot has gone within the transaction.
#[inline(always)]
pub fn peek<T>(context: &Context, name: &Argument, read: impl FnOnce(Value) -> T) -> Result<T, Unavailable> {
    let forkless = OPTIONS.load(Ordering::Relaxed) & HANDLE_FORKLESS != 0;
    let mode = if forkless { READ | WRITE } else { READ };
    // SAFETY: context and name are live, as their borrows show.
    let handle = unsafe { api!(RedisModule_OpenKey)(context.0, name.0, mode) };
    match NonNull::new(handle) {
        Some(handle) => Ok(read(Key::<'_> { handle, open: PhantomData }.value())),
        None if forkless => copy(context, name, read),
        None => Ok(read(Value::Absent)),
    }
}

/// Hands `read` the reply of GET.
#[cold]
fn copy<T>(context: &Context, name: &Argument, read: impl FnOnce(Value) -> T) -> Result<T, Unavailable> {
    // SAFETY: context and name are live, and the reply is freed after its bytes have been read.
    unsafe {
        let reply = api!(RedisModule_Call)(context.0, c"GET".as_ptr(), c"s".as_ptr(), name.0);
        let reply = NonNull::new(reply).ok_or(Unavailable)?.as_ptr();
        let value = match api!(RedisModule_CallReplyType)(reply) {
            REPLY_NULL => Value::Absent,
            REPLY_STRING => {
                let mut length = 0;
                let bytes = api!(RedisModule_CallReplyStringPtr)(reply, &mut length);
                Value::String(slice::from_raw_parts(bytes.cast(), length))
            }
            _ => Value::OtherType,
        };
        let result = read(value);
        api!(RedisModule_FreeCallReply)(reply);
        Ok(result)
    }
}

impl Key<'_> {
    #[inline(always)]
    pub fn value(&self) -> Value<'_> {
        let mut length = 0;
        // SAFETY: the handle is open. The bytes stay as they are until a write, which consumes the borrowed key.
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

impl Drop for Key<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the handle is open and is not used again.
        unsafe { api!(RedisModule_CloseKey)(self.handle.as_ptr()) }
    }
}

impl<'a> Deref for WritableKey<'a> {
    type Target = Key<'a>;

    fn deref(&self) -> &Key<'a> {
        &self.key
    }
}

impl<'a> WritableKey<'a> {
    /// Opens the key `name` for reading and writing, whether it exists or not.
    ///
    /// Errors: a Valkey that saves without a fork may refuse it.
    #[inline(always)]
    pub fn open(context: &'a Context, name: &'a Argument) -> Result<Self, Unavailable> {
        // SAFETY: context and name are live, as their borrows show.
        let handle = unsafe { api!(RedisModule_OpenKey)(context.0, name.0, READ | WRITE) };
        let key = Key { handle: NonNull::new(handle).ok_or(Unavailable)?, open: PhantomData };
        Ok(Self { key, context, name })
    }

    /// Stores these texts at the key, one after another, replicates them to the AOF and to replicas, and closes the
    /// key. The key expires at `expire_at` ms since the epoch.
    ///
    /// Errors: see [`open`](Self::open) and [`delete_expired`]. If another module's handler of the `new` event stores a
    /// value of another type at the key that this makes, the key is deleted.
    #[inline(always)]
    pub fn set<const LENGTH: usize>(
        mut self,
        first: [u8; LENGTH],
        further: impl ExactSizeIterator<Item = [u8; LENGTH]>,
        expire_at: u64,
    ) -> Result<(), Unavailable> {
        let length = further.len().wrapping_add(1).wrapping_mul(LENGTH);
        let Some(mut room) = self.room(length, expire_at)? else {
            // The handler has stored a value of another type. Replicas still have the limiter that was here.
            self.delete();
            return Err(Unavailable);
        };
        // SAFETY: the room is the key's whole string. It is not empty, so it is not the constant that stands for an
        // absent key. Until the key is closed, below, the server neither moves nor writes it, and reads it only through
        // `bytes`.
        let bytes = unsafe { room.as_mut() };
        if let Some((place, rest)) = bytes.split_first_chunk_mut() {
            *place = first;
            for (place, text) in rest.as_chunks_mut().0.iter_mut().zip(further) {
                *place = text;
            }
        }
        self.replicate(|| self.replicate_set(bytes, expire_at));
        self.close_changed();
        Ok(())
    }

    /// Makes the key hold a string of this length, and sets the expiry. Returns the string's bytes, to be written;
    /// `None` if another module's handler of the `new` event has stored a value of another type.
    ///
    /// Errors: those of `set`.
    #[inline(always)]
    fn room(&mut self, length: usize, expire_at: u64) -> Result<Option<NonNull<[u8]>>, Unavailable> {
        // Set the expiry first: another module's callback may have replaced the value since the key was opened, and on
        // Valkey from 8.1 and Redis from 8.2 only setting the expiry makes the handle point to the new value.
        let mut exists = self.expire(expire_at);
        if !exists && delete_expired(self.context, self.name)? {
            // Open the key again: another module's handler of the deletion may have made a new one.
            *self = Self::open(self.context, self.name)?;
            exists = self.expire(expire_at);
        }
        let room = if exists { self.bytes(length) } else { self.make(length, expire_at) };
        if room.is_some() {
            return Ok(room);
        }
        // The call has more quotas than the key had, or another module's callback has changed the value. Make the key
        // anew: Redis 8.0 to 8.6 counts the sizes of keys wrong if a string changes its length.
        self.remove();
        Ok(self.make(length, expire_at))
    }

    /// Deletes the key here, in the AOF and on replicas, and closes it.
    #[inline(always)]
    pub fn delete(self) {
        self.remove();
        self.replicate(|| {
            // SAFETY: context and name are live.
            unsafe { api!(RedisModule_Replicate)(self.context.0, c"DEL".as_ptr(), c"s".as_ptr(), self.name.0) };
        });
        self.close_changed();
    }

    /// Sets the expiry in ms since the epoch. Tells whether there is a key.
    #[inline(always)]
    fn expire(&self, at: u64) -> bool {
        // SAFETY: the handle is open for writing.
        unsafe { api!(RedisModule_SetAbsExpire)(self.handle.as_ptr(), at.cast_signed()) == OK }
    }

    /// Makes a string of this length, in the form that the next call need not convert. Returns its bytes; `None` if
    /// another module's handler of the `new` event has stored a value of another type.
    fn make(&self, length: usize, expire_at: u64) -> Option<NonNull<[u8]>> {
        self.resize(length);
        self.expire(expire_at);
        self.bytes(length).or_else(|| {
            // The handler has changed the string's length.
            self.resize(length);
            self.bytes(length)
        })
    }

    /// Gives the string this length; makes one if there is no key.
    #[inline(always)]
    fn resize(&self, length: usize) {
        // SAFETY: the handle is open for writing.
        unsafe { api!(RedisModule_StringTruncate)(self.handle.as_ptr(), length) };
    }

    fn remove(&self) {
        // SAFETY: the handle is open for writing.
        unsafe { api!(RedisModule_DeleteKey)(self.handle.as_ptr()) };
    }

    /// Returns the bytes of the key's string, to be written; `None` if the key holds no string of this length.
    #[inline(always)]
    fn bytes(&self, length: usize) -> Option<NonNull<[u8]>> {
        let mut held = 0;
        // SAFETY: the handle is open for writing.
        let bytes = unsafe { api!(RedisModule_StringDMA)(self.handle.as_ptr(), &mut held, WRITE) };
        let bytes = NonNull::new(bytes.cast())?;
        (held == length).then(|| NonNull::slice_from_raw_parts(bytes, length))
    }

    /// Replicates the write's effect by `send` if anything listens. If not, it only counts the write, for the server's
    /// save points.
    #[inline(always)]
    fn replicate(&self, send: impl FnOnce()) {
        if listeners::any(self.context) {
            send();
        } else {
            // SAFETY: the context is live. The server counts the write and, since nothing listens, replicates nothing.
            unsafe { api!(RedisModule_ReplicateVerbatim)(self.context.0) };
        }
    }

    #[inline(always)]
    fn replicate_set(&self, bytes: &[u8], expire_at: u64) {
        let expire_at = decimal::format(expire_at);
        let expire_at = decimal::without_zeros(&expire_at);
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

    /// Closes the key, and tells WATCH and client-side caches of its change. `RedisModule_SignalModifiedKey` would also
    /// work, but makes Redis 8.6 look the key up again: 10% of a call.
    #[inline(always)]
    fn close_changed(self) {
        let context = self.context.0;
        let options = OPTIONS.load(Ordering::Relaxed);
        // SAFETY: the context is live. Until the options are set again, only the closing of the key reads them.
        unsafe {
            api!(RedisModule_SetModuleOptions)(context, options & !UNCHANGED_WHEN_CLOSED);
            drop(self);
            api!(RedisModule_SetModuleOptions)(context, options);
        }
    }
}

/// Deletes an expired key that the server keeps because writes are paused. Tells whether it has called DEL.
///
/// Call this for a key that reads as absent, before a new one is made in its place: a second key of the same name
/// crashes the server. The DEL is replicated (`!`), and so are the writes of another module's handler of the deletion.
/// Do not use an older handle of any key afterwards: that handler may have deleted or replaced the key.
///
/// Errors: a cluster node refuses the DEL if the slot has gone, or has begun to move, within the transaction.
#[inline(always)]
pub fn delete_expired(context: &Context, name: &Argument) -> Result<bool, Unavailable> {
    let paused = context.are_writes_paused();
    if paused {
        // SAFETY: context and name are live, and the reply, if there is one, is freed.
        unsafe {
            let reply = api!(RedisModule_Call)(context.0, c"DEL".as_ptr(), c"!s".as_ptr(), name.0);
            api!(RedisModule_FreeCallReply)(NonNull::new(reply).ok_or(Unavailable)?.as_ptr());
        }
    }
    Ok(paused)
}

/// Sets the module's options, and makes the string that calls share, when the module loads.
///
/// # Safety
/// The module has seen every function of the API.
pub(super) unsafe fn prepare(context: &Context, options: c_int) {
    let word = c"PXAT";
    // SAFETY: as promised by the caller; the context is live, and the server copies the word. A string that is made
    // without a context outlives the call.
    unsafe {
        api!(RedisModule_SetModuleOptions)(context.0, options);
        let word = api!(RedisModule_CreateString)(ptr::null_mut(), word.as_ptr(), word.count_bytes());
        PXAT.store(word, Ordering::Relaxed);
    }
    OPTIONS.store(options, Ordering::Relaxed);
}

/// Frees the string that `prepare` has made.
///
/// # Safety
/// `prepare` has been called, and the server calls no command of the module after this.
pub(super) unsafe fn clean_up() {
    // SAFETY: the string is that of `prepare`, and no later call uses it.
    unsafe { api!(RedisModule_FreeString)(ptr::null_mut(), PXAT.swap(ptr::null_mut(), Ordering::Relaxed)) }
}
