//! Opens, reads, writes and closes a key in the server's database.

use std::ffi::c_int;
use std::ptr::NonNull;
use std::slice;

use redis_module::raw;

use super::{Argument, Context, OK, options, replication};

const READ: c_int = 1 << 0;
const WRITE: c_int = 1 << 1;
const KEYTYPE_EMPTY: c_int = 0;
const REPLY_STRING: c_int = 0;
const REPLY_NULL: c_int = 4;

/// A key, open for reading and writing. Dropping a `Key` closes the key. A `Key` borrows the context, so no other use
/// of the context compiles while the key is open. Such a use might run another module's callback, which may delete the
/// key.
pub struct Key<'a> {
    handle: NonNull<raw::RedisModuleKey>,
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

/// The error for a key that the server does not allow to be read or written now. A call that fails with this error has
/// changed nothing, except in the case described at [`Key::set`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unavailable;

/// Passes the value of the key `name` to `read`, without changing the key.
///
/// Reading through a handle may change the value's encoding, which crashes a Valkey server that is saving that value
/// without a fork. On a server that may save this way, `look` therefore opens the key for writing, which the server
/// refuses during such a save. `look` then falls back to GET, which reads a copy.
///
/// Errors: `Unavailable` if a cluster node refuses the GET because the slot has left the node during a transaction.
pub fn look<T>(context: &mut Context, name: &Argument, read: impl FnOnce(Value) -> T) -> Result<T, Unavailable> {
    let forkless = options::is_forkless();
    match Key::open_for(if forkless { READ | WRITE } else { READ }, context, name) {
        Some(key) => Ok(read(key.value())),
        None if forkless => look_by_get(context, name, read),
        None => Ok(read(Value::Absent)),
    }
}

/// Passes the value that GET returns to `read`.
#[cold]
fn look_by_get<T>(context: &Context, name: &Argument, read: impl FnOnce(Value) -> T) -> Result<T, Unavailable> {
    // SAFETY: the context and the name are live, and the reply is freed after its bytes have been read.
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

/// Deletes an expired key that reads as absent but still exists. The server keeps such a key while `CLIENT PAUSE` or a
/// failover pauses writes, and a call can encounter one only within a transaction. Returns whether DEL was called.
///
/// Without the DEL, creating the key again would crash the server, which cannot hold two keys with the same name. The
/// DEL is replicated (`!`), and so are writes made by another module's handler for the deletion.
///
/// Errors: `Unavailable` if a cluster node refuses the DEL because the slot has left the node, or begun to move, during
/// the transaction.
pub fn delete_expired(context: &Context, name: &Argument) -> Result<bool, Unavailable> {
    // SAFETY: the context and the name are live, and the reply, if there is one, is freed.
    unsafe {
        let paused = api!(RedisModule_AvoidReplicaTraffic)() != 0;
        if paused {
            let reply = api!(RedisModule_Call)(context.0, c"DEL".as_ptr(), c"!s".as_ptr(), name.0);
            api!(RedisModule_FreeCallReply)(NonNull::new(reply).ok_or(Unavailable)?.as_ptr());
        }
        Ok(paused)
    }
}

impl<'a> Key<'a> {
    /// Opens the key `name` for reading and writing, whether or not it exists.
    ///
    /// Errors: `Unavailable` if a Valkey server refuses to open the key because it is saving without a fork.
    pub fn open(context: &'a mut Context, name: &'a Argument) -> Result<Self, Unavailable> {
        Self::open_for(READ | WRITE, context, name).ok_or(Unavailable)
    }

    /// Opens the key. Returns `None` if the server refuses, or if the key does not exist and the mode is only `READ`.
    fn open_for(mode: c_int, context: &'a Context, name: &'a Argument) -> Option<Self> {
        // SAFETY: the context and the name are live, as their borrows show.
        let handle = unsafe { api!(RedisModule_OpenKey)(context.0, name.0, mode) };
        Some(Self { handle: NonNull::new(handle)?, context, name })
    }

    pub fn value(&self) -> Value<'_> {
        let mut length = 0;
        // SAFETY: the handle is open. Only a write changes the bytes, and it consumes the key that the value borrows.
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

    /// Stores a non-empty value, replicates it to the AOF and to replicas, and closes the key. The key expires at
    /// `expire_at`, in ms since the epoch.
    ///
    /// Errors: those of [`open`](Self::open) and [`delete_expired`]. Also `Unavailable`, if another module's handler
    /// for the `new` event replaces the new value with one of another type. The handler's value then stays, and gets
    /// the expiry.
    pub fn set(mut self, value: &[u8], expire_at: u64) -> Result<(), Unavailable> {
        let string = self.prepare_string(value.len(), expire_at)?;
        // SAFETY: the key's string has the value's length, and the two do not overlap. The string is not empty, so it
        // is not the constant that the server returns for an absent key.
        unsafe { string.copy_from_nonoverlapping(NonNull::from(value).cast(), value.len()) };
        replication::set(self.context, self.name, value, expire_at);
        self.close_changed();
        Ok(())
    }

    /// Deletes the key on this server, in the AOF and on replicas, and closes it.
    pub fn delete(self) {
        self.remove();
        replication::delete(self.context, self.name);
        self.close_changed();
    }

    /// Makes the key hold a string of `length` bytes, and sets the expiry. Returns the string's bytes for writing.
    ///
    /// Errors: the same as those of `set`.
    fn prepare_string(&mut self, length: usize, expire_at: u64) -> Result<NonNull<u8>, Unavailable> {
        // Set the expiry first: another module's callback may have replaced the value since the key was opened. With
        // Valkey 8.1+ and Redis 8.2+, only setting the expiry makes the handle point to the new value.
        let mut exists = self.expire(expire_at);
        if !exists && delete_expired(self.context, self.name)? {
            // Open the key again: another module's handler for the deletion may have created a new key.
            *self = Self::open_for(READ | WRITE, self.context, self.name).ok_or(Unavailable)?;
            exists = self.expire(expire_at);
        }
        let string = if exists { self.writable_bytes(length) } else { self.create_string(length, expire_at) };
        let string = string.or_else(|| {
            // The new value is longer than the old one, or another module's callback has changed the old one. Recreate
            // the key, because Redis 8.0 to 8.6 miscounts key sizes if a string changes its length.
            self.remove();
            self.create_string(length, expire_at)
        });
        string.ok_or(Unavailable)
    }

    /// Creates a string of `length` bytes in the raw encoding, which the next call need not convert before it writes.
    /// Returns the bytes, or `None` if another module's handler for the `new` event has stored a value of another type.
    fn create_string(&self, length: usize, expire_at: u64) -> Option<NonNull<u8>> {
        self.resize(length);
        self.expire(expire_at);
        self.writable_bytes(length).or_else(|| {
            // Another module's handler has changed the string's length, so set the length again.
            self.resize(length);
            self.writable_bytes(length)
        })
    }

    /// Sets the expiry, in ms since the epoch. Returns whether the key exists.
    fn expire(&self, at: u64) -> bool {
        // SAFETY: the handle is open for writing.
        unsafe { api!(RedisModule_SetAbsExpire)(self.handle.as_ptr(), at.cast_signed()) == OK }
    }

    /// Sets the length of the key's string. If there is no key, creates one.
    fn resize(&self, length: usize) {
        // SAFETY: the handle is open for writing.
        unsafe { api!(RedisModule_StringTruncate)(self.handle.as_ptr(), length) };
    }

    fn remove(&self) {
        // SAFETY: the handle is open for writing.
        unsafe { api!(RedisModule_DeleteKey)(self.handle.as_ptr()) };
    }

    /// Returns the bytes of the key's string for writing, or `None` if the key does not hold a string of `length`
    /// bytes.
    fn writable_bytes(&self, length: usize) -> Option<NonNull<u8>> {
        let mut held = 0;
        // SAFETY: the handle is open for writing.
        let bytes = unsafe { api!(RedisModule_StringDMA)(self.handle.as_ptr(), &mut held, WRITE) };
        let bytes = NonNull::new(bytes.cast())?;
        (held == length).then_some(bytes)
    }

    /// Closes the changed key, which signals the change to WATCH and client-side caches.
    /// `RedisModule_SignalModifiedKey` would do the same, but on Redis 8.6 it looks up the key again, which takes 10%
    /// of a call.
    fn close_changed(self) {
        let context = self.context;
        // Until the options are restored, the server reads them only to close the key, so nothing else is affected.
        options::set_all_but(context, options::UNCHANGED_WHEN_CLOSED);
        drop(self);
        options::set(context);
    }
}

impl Drop for Key<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle is open and is not used again.
        unsafe { api!(RedisModule_CloseKey)(self.handle.as_ptr()) }
    }
}
