/* Rate limiting with hiredis. To run this file: cc -o hiredis hiredis.c -lhiredis
 * [REDIS_PORT=6379] [TIMEOUT=0.1] [FAIL=open] ./hiredis
 *
 * This is for one process for each request, whose pool is the server's maxclients. A connection belongs to one thread:
 * a program with threads makes its connections at the start. */

#include <errno.h>
#include <hiredis/hiredis.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct answer {
    int status;
    long long limit, remaining, retry_after, reset_after;
};

/* The decision on a call without a reply: allowed or refused. */
enum fail { OPEN, CLOSED };

static const char *setting(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value ? value : otherwise;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + time.tv_nsec / 1e9;
}

/* Connects, for one thread. Returns a connection with an error if there is no server. Returns NULL if the server, which
 * has the most clients that it accepts, has closed all new connections for a second. */
static redisContext *connection(void) {
    /* The longest time that a call waits for a new connection, and for the reply, in seconds. */
    double seconds = atof(setting("TIMEOUT", "0.1"));
    struct timeval timeout = {(time_t)seconds, (suseconds_t)((seconds - (time_t)seconds) * 1e6)};
    for (double ends = now() + 1; now() < ends; nanosleep(&(struct timespec){0, 10000000}, NULL)) {
        redisContext *context = redisConnectWithTimeout("127.0.0.1", atoi(setting("REDIS_PORT", "6379")), timeout);
        if (!context) abort();
        if (context->err) return context;
        redisSetTimeout(context, timeout);
        errno = 0;
        redisReply *reply = redisCommand(context, "PING");
        bool closed = context->err == REDIS_ERR_EOF || errno == ECONNRESET || errno == EPIPE;
        bool full = reply ? strstr(reply->str, "max number of clients") != NULL : closed;
        if (reply) freeReplyObject(reply);
        if (!full) return context;
        redisFree(context);
    }
    return NULL;
}

/* Makes a call, and returns the status and the numbers to answer an HTTP request with. */
static struct answer throttle(redisContext **context, const char *key, long long max_burst, long long count,
                              long long period, long long quantity, enum fail fail) {
    struct answer answer = {0};
    if (quantity < 0) {
        fprintf(stderr, "a quantity below zero would give tokens back\n");
        answer.status = 400;
        return answer;
    }
    if (!*context) *context = connection();
    redisReply *reply = NULL;
    if (*context && !(*context)->err)
        reply = redisCommand(*context, "CL.THROTTLE %s %lld %lld %lld %lld", key, max_burst, count, period, quantity);
    if (reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == 5) {
        redisReply **integers = reply->element;
        answer.status = !integers[0]->integer ? 200 : integers[3]->integer < 0 ? 413 : 429;
        answer.limit = integers[1]->integer;
        answer.remaining = integers[2]->integer;
        answer.retry_after = integers[3]->integer;
        answer.reset_after = integers[4]->integer;
    } else {
        const char *error = reply ? reply->str : *context ? (*context)->errstr : "the server accepts no more clients";
        fprintf(stderr, "no limits: %s\n", error);
        answer.status = *context && fail == OPEN ? 200 : 503;
    }
    /* The next call makes another connection: one that has failed once always fails, and one that answers READONLY
     * leads to a server that a failover has made a replica. */
    if (!reply || (reply->type == REDIS_REPLY_ERROR && !strncmp(reply->str, "READONLY", 8))) {
        redisFree(*context);
        *context = NULL;
    }
    if (reply) freeReplyObject(reply);
    return answer;
}

int main(void) {
    redisContext *context = NULL;
    /* A write to a lost connection is an error then; otherwise it would end the process. */
    signal(SIGPIPE, SIG_IGN);
    enum fail fail = strcmp(setting("FAIL", "open"), "open") == 0 ? OPEN : CLOSED;
    /* The limiter allows three at once and one a minute; the last call asks for four tokens. */
    const long long quantities[] = {1, 1, 1, 1, 4};
    for (int i = 0; i < 5; i++) {
        struct answer answer = throttle(&context, "user123", 2, 1, 60, quantities[i], fail);
        printf("%d ", answer.status);
        if (answer.status == 503) printf("Retry-After: 1");
        if (answer.limit) {
            printf("X-RateLimit-Limit: %lld, X-RateLimit-Remaining: %lld, X-RateLimit-Reset: %lld", answer.limit,
                   answer.remaining, answer.reset_after);
            /* The wait is -1 if the call was allowed, or if it asks for more than the limit and will never be
             * allowed. */
            if (answer.retry_after >= 0) printf(", Retry-After: %lld", answer.retry_after);
        }
        printf("\n");
    }
    redisFree(context);
    return 0;
}
