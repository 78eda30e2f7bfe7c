// A stand-in for brandur's redis-cell 0.5.0, for upgrades from it and back. It has the same module name, command, stored
// state (the TAT as a native string with an expiry in milliseconds) and replication (the call itself, limited or not). It
// accepts only valid calls.

#include "loader.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

static const char *(*text_of_reply)(reply *, size_t *);
static int (*read_integer)(const string *, long long *);
static int (*replicate_verbatim)(context *);
static int (*reply_array)(context *, long);

static long long stored(context *ctx, string *name, long long otherwise) {
    char digits[32];
    size_t length;
    reply *answer = call(ctx, "GET", "s", name);
    const char *text = text_of_reply(answer, &length);
    if (text) {
        snprintf(digits, sizeof digits, "%.*s", (int)length, text);
        otherwise = atoll(digits);
    }
    free_reply(answer);
    return otherwise;
}

static void store(context *ctx, string *name, long long tat, long long milliseconds) {
    char digits[32], expiry[32];
    snprintf(digits, sizeof digits, "%lld", tat);
    snprintf(expiry, sizeof expiry, "%lld", milliseconds);
    free_reply(call(ctx, "SET", "sccc", name, digits, "PX", expiry));
}

static long long seconds(long long nanoseconds) {
    return (nanoseconds + 999999999) / 1000000000;
}

static int throttle(context *ctx, string **argv, int argc) {
    long long burst, count, period, quantity = 1;
    if (argc < 5 || read_integer(argv[2], &burst) || read_integer(argv[3], &count) || read_integer(argv[4], &period) ||
        (argc > 5 && read_integer(argv[5], &quantity)))
        return ERR;
    struct timeval time;
    gettimeofday(&time, NULL);
    long long now = time.tv_sec * 1000000000LL + time.tv_usec * 1000LL;
    long long interval = period * 1000000000 / count, tolerance = interval * (burst + 1);
    long long tat = stored(ctx, argv[1], now), base = tat > now ? tat : now;
    long long wait = base + interval * quantity - tolerance - now;
    long long full = wait > 0 ? tat - now : base + interval * quantity - now;
    if (wait <= 0) store(ctx, argv[1], now + full, full / 1000000);
    reply_array(ctx, 5);
    reply_integer(ctx, wait > 0);
    reply_integer(ctx, burst + 1);
    reply_integer(ctx, (tolerance - full) / interval);
    reply_integer(ctx, wait > 0 ? seconds(wait) : -1);
    reply_integer(ctx, seconds(full));
    return replicate_verbatim(ctx);
}

int RedisModule_OnLoad(context *ctx, string **argv, int argc) {
    (void)argv, (void)argc;
    const struct function functions[] = {
        {"RedisModule_CallReplyStringPtr", &text_of_reply},
        {"RedisModule_StringToLongLong", &read_integer},
        {"RedisModule_ReplicateVerbatim", &replicate_verbatim},
        {"RedisModule_ReplyWithArray", &reply_array},
        {NULL, NULL},
    };
    if (begin(ctx, "redis-cell", functions) != OK) return ERR;
    return create_command(ctx, "cl.throttle", throttle, "write", 1, 1, 1);
}
