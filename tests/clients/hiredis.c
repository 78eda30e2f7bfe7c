/* Rate limiting with hiredis. To run it: cc -o hiredis hiredis.c -lhiredis
 * [REDIS_PORT=6379] [TIMEOUT=0.1] [FAIL=open] ./hiredis */

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

/* A connection, which is one thread's; one with an error where there is no server; NULL where the server has as many
 * clients as it may have, and closes it. Such a server is not gone: it is asked again for a second. */
static redisContext *connection(void) {
    /* How long a call waits for the reply, in seconds. To connect has a time of its own. */
    double seconds = atof(setting("TIMEOUT", "0.1"));
    struct timeval timeout = {(time_t)seconds, (suseconds_t)((seconds - (time_t)seconds) * 1e6)};
    struct timeval to_connect = {1, 0};
    for (int left = 100; left; left--) {
        redisContext *context = redisConnectWithTimeout("127.0.0.1", atoi(setting("REDIS_PORT", "6379")), to_connect);
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
        nanosleep(&(struct timespec){0, 10000000}, NULL);
    }
    return NULL;
}

/* Makes a call, and returns the status and the numbers to answer an HTTP request with. */
static struct answer throttle(redisContext **context, const char *key, long long max_burst, long long count,
                              long long period, long long quantity, enum fail fail) {
    struct answer answer = {0};
    if (!*context) *context = connection();
    redisReply *reply = NULL;
    if (*context && !(*context)->err)
        reply = redisCommand(*context, "CL.THROTTLE %s %lld %lld %lld %lld", key, max_burst, count, period, quantity);
    if (reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == 5) {
        redisReply **integers = reply->element;
        answer.status = integers[0]->integer ? 429 : 200;
        answer.limit = integers[1]->integer;
        answer.remaining = integers[2]->integer;
        answer.retry_after = integers[3]->integer;
        answer.reset_after = integers[4]->integer;
    } else {
        const char *error = reply ? reply->str : *context ? (*context)->errstr : "the server has no place";
        fprintf(stderr, "no limits: %s\n", error);
        answer.status = *context && fail == OPEN ? 200 : 503;
    }
    if (reply) {
        freeReplyObject(reply);
    } else {
        /* A connection that has failed once fails for ever: the next call makes another. */
        redisFree(*context);
        *context = NULL;
    }
    return answer;
}

int main(void) {
    redisContext *context = NULL;
    /* To write to a server that is gone is an error then, and not the end of the process. */
    signal(SIGPIPE, SIG_IGN);
    enum fail fail = strcmp(setting("FAIL", "open"), "open") == 0 ? OPEN : CLOSED;
    /* Three at once and one a minute; the last call asks for four. */
    const long long quantities[] = {1, 1, 1, 1, 4};
    for (int i = 0; i < 5; i++) {
        struct answer answer = throttle(&context, "user123", 2, 1, 60, quantities[i], fail);
        printf("%d ", answer.status);
        if (answer.status == 503) printf("Retry-After: 1");
        if (answer.limit) {
            printf("X-RateLimit-Limit: %lld, X-RateLimit-Remaining: %lld, X-RateLimit-Reset: %lld", answer.limit,
                   answer.remaining, answer.reset_after);
            /* -1 where the call was allowed, and where it asks for more than the limit and never will be. */
            if (answer.retry_after >= 0) printf(", Retry-After: %lld", answer.retry_after);
        }
        printf("\n");
    }
    redisFree(context);
    return 0;
}
