//! Whether anything listens to writes: an append-only file, a replica, or a replica that may come back for the writes
//! that it missed.
//!
//! Usually nothing listens, and a server from Redis 7 on then drops at once a command that it is asked to replicate.
//! Building the SET all the same would cost 40% of a call. Redis 6.2 keeps the command to the end of the call, when a
//! replica may have come: there, every write is replicated.
//!
//! Each call asks for the append-only file, cluster mode, in which slots may move, and child processes. Replicas and
//! the backlog that is kept for them are asked for once, and again after each event by which they may have come. That
//! is soon enough:
//!
//! * SYNC makes a backlog under a new replication ID, so that no replica can ask for an earlier write. A snapshot
//!   follows, in the same command or later. It holds each write before it, and the stream has to hold each write after
//!   it. Its beginning is an event: the fork of the process that makes it, or the start of persistence in the server's
//!   own process, as Valkey's synchronisation without a fork (valkey 2878, not released yet) has it. That one goes on
//!   beside calls: what the stream says of keys that it has passed, the server puts into the snapshot.
//! * Another module's handler of that event may call before this module's handler, and the server sends the call after
//!   the snapshot has begun. After a fork, the server already tells of the child process. On a server that may do
//!   without a fork, each call that another module, a script or a transaction makes is replicated.
//! * The backlog of a server that follows another one goes on under the old replication ID when the server is promoted.
//!   The backlog of a server that has saved it goes on when the file is loaded. Both are events.
//! * A client may ask to go on with a replication ID and an offset that it has from INFO alone. When it is online, that
//!   is an event.
//! * The cron's tick, some ten times a second, is for the day on which the last backlog is given up, and for a case
//!   that this list lacks.
//!
//! The kind of an event does not matter, so a kind that a later server adds (redis 15327 added two to the fork's, and
//! 15432 took them back) has one more call ask, and does nothing else.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering::Relaxed};

use redis_module::raw;

use super::{Context, OK};

static REMEMBERED: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const NO_LISTENER: u8 = 1;
const LISTENER: u8 = 2;

/// Whether the server sends every event that matters, and drops at once what nothing listens to. If not, every write is
/// replicated.
static SUBSCRIBED: AtomicBool = AtomicBool::new(false);

/// The events by which a listener may have come, whatever their kind.
const EVENTS: [u64; 6] = [
    raw::REDISMODULE_EVENT_LOADING,
    raw::REDISMODULE_EVENT_REPLICA_CHANGE,
    raw::REDISMODULE_EVENT_FORK_CHILD,
    raw::REDISMODULE_EVENT_PERSISTENCE,
    raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED,
    raw::REDISMODULE_EVENT_CRON_LOOP,
];

/// The context's flags each of which means that something listens, or may begin to within the call.
static FLAGS: AtomicU32 = AtomicU32::new(LISTENING);
const LISTENING: u32 =
    raw::REDISMODULE_CTX_FLAGS_AOF | raw::REDISMODULE_CTX_FLAGS_CLUSTER | raw::REDISMODULE_CTX_FLAGS_ACTIVE_CHILD;
/// The flags of a call that another module, a transaction or a script makes.
const NESTED: u32 = raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING | raw::REDISMODULE_CTX_FLAGS_LUA;

/// Tells whether a write has to be replicated. If not, it may only be counted.
#[inline(always)]
pub fn any(context: &Context) -> bool {
    // SAFETY: the context is live.
    let flags = unsafe { api!(RedisModule_GetContextFlags)(context.0) }.cast_unsigned();
    if flags & FLAGS.load(Relaxed) != 0 {
        return true;
    }
    match REMEMBERED.load(Relaxed) {
        UNKNOWN => ask(context),
        known => known == LISTENER,
    }
}

#[cold]
fn ask(context: &Context) -> bool {
    let fields = context.server_info(c"replication", [c"connected_slaves", c"repl_backlog_active"]);
    let none = SUBSCRIBED.load(Relaxed) && fields == [Some(0), Some(0)];
    REMEMBERED.store(if none { NO_LISTENER } else { LISTENER }, Relaxed);
    !none
}

/// Subscribes to the events. This comes last when the module loads: Redis before 7.2 keeps the subscriptions of a load
/// that fails. `forkless` is whether the server may make a snapshot without a fork.
pub fn subscribe(context: &Context, forkless: bool) {
    let subscribed = EVENTS.into_iter().all(|id| {
        let event = raw::RedisModuleEvent { id, dataver: 1 };
        // SAFETY: the context is live, and `forget` has the signature of an event's handler.
        unsafe { api!(RedisModule_SubscribeToServerEvent)(context.0, event, Some(forget)) == OK }
    });
    // SAFETY: written once, by `Export_RedisModule_Init`. Redis 6.2 has no such function.
    let drops_at_once = unsafe { raw::RedisModule_GetCommand }.is_some();
    SUBSCRIBED.store(subscribed && drops_at_once, Relaxed);
    FLAGS.store(if forkless { LISTENING | NESTED } else { LISTENING }, Relaxed);
    REMEMBERED.store(UNKNOWN, Relaxed);
}

/// # Safety
/// Any call is safe: the function looks at none of its arguments.
unsafe extern "C" fn forget(
    _context: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    _kind: u64,
    _data: *mut std::ffi::c_void,
) {
    REMEMBERED.store(UNKNOWN, Relaxed);
}
