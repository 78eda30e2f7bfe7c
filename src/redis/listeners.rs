//! Whether anything listens to writes: an append-only file, a replica, or a replica that may come back for what it
//! missed.
//!
//! Usually nothing does, and then a server from Redis 7 on drops at once what it is asked to replicate. Building the
//! SET anyway would cost 40% of a call. Redis 6.2 keeps what it is asked to replicate to the end of the call, when a
//! replica may have come: there, every write is replicated.
//!
//! Asked at every call: append-only file, cluster mode, in which slots may move, and child processes. Replicas and the
//! backlog that is kept for them are asked for once, and again after each event by which they may have come. Why that
//! is soon enough:
//!
//! * A backlog begins with a replica's SYNC, and under a new replication ID, so that no replica can ask for anything
//!   earlier. Writes before the fork are in the snapshot; the replica reads the backlog from the fork's offset on. The
//!   fork is an event. Another module's handler of that event may call before this module's handler: by then, the
//!   server already tells of the child process.
//! * The backlog of a server that follows another one goes on under the old replication ID when the server is promoted.
//!   The backlog of a server that has saved it goes on when the file is loaded. Both are events.
//! * A client may ask to go on with a replication ID and an offset that it has from INFO alone. When it is online, that
//!   is an event.
//! * The cron's tick, some ten times a second, is for the day on which the last backlog is given up, and for a case
//!   that this list lacks.
//!
//! Every snapshot for a replica has a fork: a Valkey that can take one without asks each module for an option first,
//! which this one does not set.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};

use redis_module::raw;

use super::{Context, OK};

static REMEMBERED: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const NO_LISTENER: u8 = 1;
const LISTENER: u8 = 2;

/// Whether the server sends every event that matters, and drops at once what nothing listens to. If not, every write is
/// replicated.
static SUBSCRIBED: AtomicBool = AtomicBool::new(false);

/// In any of their kinds.
const EVENTS: [u64; 5] = [
    raw::REDISMODULE_EVENT_LOADING,
    raw::REDISMODULE_EVENT_REPLICA_CHANGE,
    raw::REDISMODULE_EVENT_FORK_CHILD,
    raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED,
    raw::REDISMODULE_EVENT_CRON_LOOP,
];

/// The context's flags of which each means that something listens, or is about to.
const FLAGS: u32 =
    raw::REDISMODULE_CTX_FLAGS_AOF | raw::REDISMODULE_CTX_FLAGS_CLUSTER | raw::REDISMODULE_CTX_FLAGS_ACTIVE_CHILD;

/// Whether a write has to be replicated. If not, it may only be counted.
#[inline(always)]
pub fn any(context: &Context) -> bool {
    // SAFETY: the context is live.
    let flags = unsafe { api!(RedisModule_GetContextFlags)(context.0) }.cast_unsigned();
    if flags & FLAGS != 0 {
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

/// Subscribes to the events. Comes last when the module loads: Redis before 7.2 keeps the subscriptions of a load that
/// fails.
pub fn subscribe(context: &Context) {
    let subscribed = EVENTS.into_iter().all(|id| {
        let event = raw::RedisModuleEvent { id, dataver: 1 };
        // SAFETY: the context is live, and `forget` has the signature of an event's handler.
        unsafe { api!(RedisModule_SubscribeToServerEvent)(context.0, event, Some(forget)) == OK }
    });
    // SAFETY: written once, by `Export_RedisModule_Init`. Redis 6.2 has no such function.
    let drops_at_once = unsafe { raw::RedisModule_GetCommand }.is_some();
    SUBSCRIBED.store(subscribed && drops_at_once, Relaxed);
    REMEMBERED.store(UNKNOWN, Relaxed);
}

/// # Safety
/// None: it looks at nothing that it is given.
unsafe extern "C" fn forget(
    _context: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    _kind: u64,
    _data: *mut std::ffi::c_void,
) {
    REMEMBERED.store(UNKNOWN, Relaxed);
}
