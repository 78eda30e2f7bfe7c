/* Rate limiting with hiredis. To run this file: cc -o hiredis hiredis.c -lhiredis
 * [REDIS_PORT=6379] [TIMEOUT=0.1] ./hiredis */

#include <hiredis/hiredis.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIZE = 200 };

static redisContext *connection(void) {
    /* The longest time that a call waits for a new connection, and for the reply, in seconds. */
    double seconds = atof(getenv("TIMEOUT") ? getenv("TIMEOUT") : "0.1");
    int port = atoi(getenv("REDIS_PORT") ? getenv("REDIS_PORT") : "6379");
    struct timeval timeout = {(time_t)seconds, (suseconds_t)((seconds - (time_t)seconds) * 1e6)};
    redisContext *context = redisConnectWithTimeout("127.0.0.1", port, timeout);
    if (!context) abort();
    if (!context->err) redisSetTimeout(context, timeout);
    return context;
}

/* Makes a call. Returns the status, and writes the headers, to answer a request with; a call without an answer is
 * refused. The connection is for one thread, and NULL until a call needs it. */
static int throttle(redisContext **context, char headers[SIZE], const char *key, long long max_burst, long long count,
                    long long period, unsigned quantity) {
    redisReply *reply = NULL;
    if (!*context) *context = connection();
    if (!(*context)->err)
        reply = redisCommand(*context, "CL.THROTTLE %s %lld %lld %lld %u", key, max_burst, count, period, quantity);
    int status = 503;
    snprintf(headers, SIZE, "Retry-After: 1");
    /* Whatever else a server or a proxy says is no answer. */
    int integral = 0;
    for (size_t i = 0; reply && i < reply->elements; i++)
        integral += reply->element[i]->type == REDIS_REPLY_INTEGER ? 1 : 6;
    if (integral == 5) {
        redisReply **integers = reply->element;
        long long limit = integers[1]->integer, retry_after = integers[3]->integer;
        const char *format = "X-RateLimit-Limit: %lld, X-RateLimit-Remaining: %lld, X-RateLimit-Reset: %lld";
        int length = snprintf(headers, SIZE, format, limit, integers[2]->integer, integers[4]->integer);
        if (retry_after >= 0) snprintf(headers + length, SIZE - length, ", Retry-After: %lld", retry_after);
        /* A wait of -1 never ends: the call asks for more than the limit, which may be 0. */
        status = !integers[0]->integer ? 200 : retry_after >= 0 ? 429 : limit ? 413 : 403;
    } else {
        fprintf(stderr, "Redis does not decide: %s\n", reply && reply->str ? reply->str : (*context)->errstr);
        /* The connection may have a late reply, or lead to a server that a failover has made a replica. */
        redisFree(*context);
        *context = NULL;
    }
    if (reply) freeReplyObject(reply);
    return status;
}

int main(void) {
    redisContext *context = NULL;
    char headers[SIZE];
    /* A write to a lost connection is an error then; otherwise it would end the process. */
    signal(SIGPIPE, SIG_IGN);
    /* The limiter allows three at once and one a minute; the last call asks for four tokens. */
    for (int i = 0; i < 5; i++) {
        int status = throttle(&context, headers, "user123", 2, 1, 60, i < 4 ? 1 : 4);
        printf("%d %s\n", status, headers);
    }
    redisFree(context);
    return 0;
}
