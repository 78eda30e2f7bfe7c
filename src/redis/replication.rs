//! Sends the effects of writes to the AOF and to replicas, but only if something listens: an append-only file, a
//! replica, or a replica that may reconnect and ask for the writes that it missed.
//!
//! Often nothing listens. Redis 7 and later then drop a replicated `SET` at once. Building the `SET` would take more
//! than a third of a call, so the module does not build it. Redis 6.2 keeps the `SET` until the end of the call, and
//! another module may have turned the AOF on by then. On Redis 6.2, the module therefore replicates every write.
//!
//! Each write checks for an append-only file, a child process, and cluster mode, in which slots may move. Replicas, and
//! the backlog that the server keeps for them, are different: the module asks the server about them only once, and
//! again after each event that may bring a replica or a backlog. Asking after these events is soon enough:
//!
//! * SYNC creates a backlog with a new replication ID, so no replica can ask for an earlier write. A snapshot follows,
//!   in the same command or later. The snapshot holds all writes before it, and the stream must hold all writes after
//!   it. The start of the snapshot is an event. Today's servers fork a process that writes the snapshot. A later Valkey
//!   may instead write the snapshot in its own process (valkey 2878, not released yet). That server accepts calls
//!   during the snapshot, and adds to it each replicated write to a key that has already been saved.
//! * Another module's handler for the start of a snapshot may run before this module's, and may itself call this
//!   module. The snapshot lacks the effect of that call, so the effect must be replicated. After a fork, it is
//!   replicated because the server's flag for child processes is already set. On a server that may write a snapshot
//!   without a fork, the module replicates the effect of each call from another module, a script or a transaction.
//! * A replica that is promoted keeps its backlog under the old replication ID. A server that loads a file in which its
//!   backlog was saved continues that backlog. Promotion and loading are both events.
//! * A client may ask to continue a stream from a replication ID and an offset that it knows only from INFO. The server
//!   sends an event when this client goes online, so the client receives the effect of each later write. Until that
//!   event or the next cron tick, the new backlog may hold calls instead of effects, and the client receives these as
//!   well. A replica does not, because it gets a snapshot.
//! * The cron tick, about ten times a second, lets the module notice that the server has freed its backlog. The tick
//!   also covers any case that is missing from this list.
//!
//! The module ignores the kind of an event. If a later server adds a kind, the next write asks again, and nothing else
//! changes. (Redis pull request 15327 added two kinds to the fork event, and 15432 removed them.)

use std::ffi::c_char;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, Ordering::Relaxed};

use redis_module::raw;

use super::{Argument, Context, OK, options};
use crate::decimal;

/// The word `PXAT` in each replicated SET. All calls share this string, which is created when the module is loaded.
static PXAT: AtomicPtr<raw::RedisModuleString> = AtomicPtr::new(ptr::null_mut());

/// Whether there is a replica or a backlog. `UNKNOWN` if no write has asked the server since the last event.
static HAS_LISTENER: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const NO: u8 = 1;
const YES: u8 = 2;

/// Whether the server sends all of `EVENTS`, and drops a replicated command at once if nothing listens. If not,
/// every write is replicated.
static SUBSCRIBED: AtomicBool = AtomicBool::new(false);

/// The events after which there may be a new replica or backlog, whatever their kind (subevent).
const EVENTS: [u64; 6] = [
    raw::REDISMODULE_EVENT_LOADING,
    raw::REDISMODULE_EVENT_REPLICA_CHANGE,
    raw::REDISMODULE_EVENT_FORK_CHILD,
    raw::REDISMODULE_EVENT_PERSISTENCE,
    raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED,
    raw::REDISMODULE_EVENT_CRON_LOOP,
];

/// The context flags with which a write is always replicated. Any of them means that something listens, or may start to
/// listen during the call.
static FLAGS: AtomicU32 = AtomicU32::new(LISTENER);
const LISTENER: u32 =
    raw::REDISMODULE_CTX_FLAGS_AOF | raw::REDISMODULE_CTX_FLAGS_CLUSTER | raw::REDISMODULE_CTX_FLAGS_ACTIVE_CHILD;
/// The context flags of a call from another module, a transaction or a script.
const NESTED: u32 = raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING | raw::REDISMODULE_CTX_FLAGS_LUA;

/// Replicates the key's new value, and its expiry at `expire_at`, in ms since the epoch.
pub fn set(context: &Context, name: &Argument, value: &[u8], expire_at: u64) {
    if !has_listener(context) {
        return count_change(context);
    }
    let expire_at = decimal::format(expire_at);
    let expire_at = decimal::without_zeros(&expire_at);
    // SAFETY: the context, the name and `PXAT` are live, and the server copies the bytes.
    unsafe {
        api!(RedisModule_Replicate)(
            context.0,
            c"SET".as_ptr(),
            c"sbsb".as_ptr(),
            name.0,
            value.as_ptr().cast::<c_char>(),
            value.len(),
            PXAT.load(Relaxed),
            expire_at.as_ptr().cast::<c_char>(),
            expire_at.len(),
        );
    }
}

/// Replicates the deletion of the key.
pub fn delete(context: &Context, name: &Argument) {
    if !has_listener(context) {
        return count_change(context);
    }
    // SAFETY: the context and the name are live.
    unsafe { api!(RedisModule_Replicate)(context.0, c"DEL".as_ptr(), c"s".as_ptr(), name.0) };
}

/// Counts a write towards the server's save points, without replicating it.
fn count_change(context: &Context) {
    // SAFETY: the context is live. The server counts the write and, since nothing listens, replicates nothing.
    unsafe { api!(RedisModule_ReplicateVerbatim)(context.0) };
}

/// Returns whether a write has to be replicated. Otherwise, the write only has to be counted.
fn has_listener(context: &Context) -> bool {
    // SAFETY: the context is live.
    let flags = unsafe { api!(RedisModule_GetContextFlags)(context.0) }.cast_unsigned();
    if flags & FLAGS.load(Relaxed) != 0 {
        return true;
    }
    match HAS_LISTENER.load(Relaxed) {
        UNKNOWN => ask(context),
        known => known == YES,
    }
}

#[cold]
fn ask(context: &Context) -> bool {
    let fields = context.server_info(c"replication", [c"connected_slaves", c"repl_backlog_active"]);
    let none = SUBSCRIBED.load(Relaxed) && fields == [Some(0), Some(0)];
    HAS_LISTENER.store(if none { NO } else { YES }, Relaxed);
    !none
}

/// Creates the string `PXAT`, and subscribes to `EVENTS`. This must be the last step of a load, because Redis before
/// 7.2 keeps the subscriptions of a failed load.
pub fn prepare(context: &Context) {
    let word = c"PXAT";
    // SAFETY: the server copies the word. A string that is created without a context outlives the call.
    let word = unsafe { api!(RedisModule_CreateString)(ptr::null_mut(), word.as_ptr(), word.count_bytes()) };
    PXAT.store(word, Relaxed);
    let subscribed = EVENTS.into_iter().all(|id| {
        let event = raw::RedisModuleEvent { id, dataver: 1 };
        // SAFETY: the context is live, and `forget` has the signature of an event handler.
        unsafe { api!(RedisModule_SubscribeToServerEvent)(context.0, event, Some(forget)) == OK }
    });
    // Redis 6.2 is the only server that lacks `RedisModule_GetCommand`, and the only one that keeps a replicated
    // command until the end of the call.
    // SAFETY: only `Export_RedisModule_Init` writes this pointer.
    let drops_at_once = unsafe { raw::RedisModule_GetCommand }.is_some();
    SUBSCRIBED.store(subscribed && drops_at_once, Relaxed);
    FLAGS.store(if options::is_forkless() { LISTENER | NESTED } else { LISTENER }, Relaxed);
    HAS_LISTENER.store(UNKNOWN, Relaxed);
}

/// Frees the string that `prepare` created.
///
/// # Safety
/// `prepare` must have been called, and the server must not call any command of the module afterwards.
pub unsafe fn clean_up() {
    // SAFETY: the string comes from `prepare`, and no later call uses it.
    unsafe { api!(RedisModule_FreeString)(ptr::null_mut(), PXAT.swap(ptr::null_mut(), Relaxed)) }
}

/// Forgets, after an event, whether there is a listener, so that the next write asks the server again.
extern "C" fn forget(
    _context: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    _kind: u64,
    _data: *mut std::ffi::c_void,
) {
    HAS_LISTENER.store(UNKNOWN, Relaxed);
}
