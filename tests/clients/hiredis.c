/* Rate limiting with hiredis. As a program: cc -o hiredis hiredis.c -lhiredis
 * [REDIS_PORT=6379] [TIMEOUT=0.1] [FAIL=open] ./hiredis */

#include <hiredis/hiredis.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct answer {
    int status;
    long long limit, remaining, retry_after, reset_after;
};

static const char *setting(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value ? value : otherwise;
}

/* A connection, which is one thread's; NULL, or one with an error, where there is no server. */
static redisContext *connection(void) {
    /* How long a call waits for the server, in seconds. */
    double seconds = atof(setting("TIMEOUT", "0.1"));
    struct timeval timeout = {(time_t)seconds, (suseconds_t)((seconds - (time_t)seconds) * 1e6)};
    redisContext *context = redisConnectWithTimeout("127.0.0.1", atoi(setting("REDIS_PORT", "6379")), timeout);
    if (context && !context->err) redisSetTimeout(context, timeout);
    return context;
}

/* Makes a call, and returns the status and the numbers to answer an HTTP request with. */
static struct answer throttle(redisContext **context, const char *key, long long max_burst, long long count,
                              long long period, long long quantity) {
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
        /* What a call without an answer decides: "open" allows it, "closed" refuses it. */
        const char *fail = setting("FAIL", "open");
        const char *error = reply ? reply->str : *context ? (*context)->errstr : "no memory";
        fprintf(stderr, "no limits, failing %s: %s\n", fail, error);
        answer.status = strcmp(fail, "open") == 0 ? 200 : 503;
    }
    if (reply) {
        freeReplyObject(reply);
    } else {
        /* What has failed once fails for ever: the next call connects anew. */
        redisFree(*context);
        *context = NULL;
    }
    return answer;
}

int main(void) {
    redisContext *context = NULL;
    /* To write to a server that is gone is an error then, and not the end of the process. */
    signal(SIGPIPE, SIG_IGN);
    /* Three at once and one a minute; the last call asks for four. */
    const long long quantities[] = {1, 1, 1, 1, 4};
    for (int i = 0; i < 5; i++) {
        struct answer answer = throttle(&context, "user123", 2, 1, 60, quantities[i]);
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
