//! Whether anybody would hear of a write: an append-only file, a replica, or one that may come back for what it missed.
//!
//! Mostly nobody does, and then a server from Redis 7 on drops at once what it is asked to replicate. To find the words for
//! it all the same would be 40% of a call. Redis 6.2 keeps it to the end of the call, when somebody may have come: there,
//! somebody always listens.
//!
//! Asked at every call: append-only file and cluster mode, in which slots may move. Replicas and the backlog that is kept
//! for them are asked for once, and again after each event by which they may have come. Why that is soon enough:
//!
//! * A backlog begins with a replica's SYNC, and under a new replication ID, so that no replica can ask for anything
//!   earlier. What is written until the snapshot for that replica is in the snapshot, and nobody reads it from the backlog: the
//!   replica is told to go on from where the backlog is when the snapshot's process is forked. That is an event, and comes
//!   before the next command.
//! * The backlog of a server that follows another one goes on under the old replication ID when the server is promoted,
//!   and that of a server which has saved it goes on when the file is loaded: both are events.
//! * A client may go on with a replication ID and an offset that nobody but INFO has told it: when it is online, that is an
//!   event.
//! * The cron's tick, some ten times a second, is there for what nobody has thought of, and for the day on which the last
//!   backlog is given up.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};

use redis_module::raw;

use super::{Context, OK};

static REMEMBERED: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const NOBODY: u8 = 1;
const SOMEBODY: u8 = 2;

/// Whether the server tells of every event that matters, and drops at once what nobody hears. If not, somebody always
/// listens.
static WATCHING: AtomicBool = AtomicBool::new(false);

/// Any of their kinds.
const EVENTS: [u64; 5] = [
    raw::REDISMODULE_EVENT_LOADING,
    raw::REDISMODULE_EVENT_REPLICA_CHANGE,
    raw::REDISMODULE_EVENT_FORK_CHILD,
    raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED,
    raw::REDISMODULE_EVENT_CRON_LOOP,
];

/// Whether a write has to be replicated. If not, it may only be counted.
#[inline(always)]
pub fn anybody(context: &Context) -> bool {
    // SAFETY: the context is live.
    let flags = unsafe { api!(RedisModule_GetContextFlags)(context.0) }.cast_unsigned();
    if flags & (raw::REDISMODULE_CTX_FLAGS_AOF | raw::REDISMODULE_CTX_FLAGS_CLUSTER) != 0 {
        return true;
    }
    match REMEMBERED.load(Relaxed) {
        UNKNOWN => ask(context),
        known => known == SOMEBODY,
    }
}

#[cold]
fn ask(context: &Context) -> bool {
    let fields = context.server_info(c"replication", [c"connected_slaves", c"repl_backlog_active"]);
    let nobody = WATCHING.load(Relaxed) && fields == [Some(0), Some(0)];
    REMEMBERED.store(if nobody { NOBODY } else { SOMEBODY }, Relaxed);
    !nobody
}

/// Begins to watch. Comes last when the module loads: a load that fails leaves subscriptions behind, on Redis before 7.2.
pub fn watch(context: &Context) {
    let subscribed = EVENTS.into_iter().all(|id| {
        let event = raw::RedisModuleEvent { id, dataver: 1 };
        // SAFETY: the context is live, and `forget` is what the server expects.
        unsafe { api!(RedisModule_SubscribeToServerEvent)(context.0, event, Some(forget)) == OK }
    });
    // SAFETY: written once, by `Export_RedisModule_Init`. Redis 6.2 has no such function.
    let drops_at_once = unsafe { raw::RedisModule_GetCommand }.is_some();
    WATCHING.store(subscribed && drops_at_once, Relaxed);
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
