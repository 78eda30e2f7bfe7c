// A stand-in for brandur's redis-cell 0.5.0, for tests that upgrade from it and go back to it. The stand-in has the
// same module name, command, stored state (the TAT as a native string with an expiry in milliseconds) and replication
// (every call itself, limited or not). The stand-in accepts only valid calls.

#include "redismodule.h"

#define MILLISECOND 1000000

static long long seconds(long long nanoseconds) {
    return (nanoseconds + 999999999) / 1000000000;
}

static int throttle(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    long long burst, count, period, quantity = 1;
    if (argc < 5 || RedisModule_StringToLongLong(argv[2], &burst) || RedisModule_StringToLongLong(argv[3], &count) ||
        RedisModule_StringToLongLong(argv[4], &period) ||
        (argc > 5 && RedisModule_StringToLongLong(argv[5], &quantity)))
        return RedisModule_WrongArity(ctx);
    RedisModule_AutoMemory(ctx);
    long long now = RedisModule_Milliseconds() * MILLISECOND, tat = now;
    RedisModuleCallReply *reply = RedisModule_Call(ctx, "GET", "s", argv[1]);
    RedisModuleString *stored = RedisModule_CreateStringFromCallReply(reply);
    if (stored) RedisModule_StringToLongLong(stored, &tat);
    if (tat < now) tat = now;
    long long interval = period * 1000000000 / count, tolerance = interval * (burst + 1);
    long long wait = tat + interval * quantity - tolerance - now;
    if (wait <= 0) {
        tat += interval * quantity;
        RedisModule_Call(ctx, "SET", "slcl", argv[1], tat, "PX", (tat - now) / MILLISECOND);
    }
    RedisModule_ReplyWithArray(ctx, 5);
    RedisModule_ReplyWithLongLong(ctx, wait > 0);
    RedisModule_ReplyWithLongLong(ctx, burst + 1);
    RedisModule_ReplyWithLongLong(ctx, (tolerance - (tat - now)) / interval);
    RedisModule_ReplyWithLongLong(ctx, wait > 0 ? seconds(wait) : -1);
    RedisModule_ReplyWithLongLong(ctx, seconds(tat - now));
    return RedisModule_ReplicateVerbatim(ctx);
}

int RedisModule_OnLoad(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    (void)argv, (void)argc;
    return RedisModule_Init(ctx, "redis-cell", 1, REDISMODULE_APIVER_1) ||
           RedisModule_CreateCommand(ctx, "cl.throttle", throttle, "write", 1, 1, 1);
}
