/* Rate limiting with hiredis. To run this file: cc -o hiredis hiredis.c -lhiredis
 * [REDIS_PORT=6379] [TIMEOUT=0.1] ./hiredis */

#include <hiredis/hiredis.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

struct answer {
    int status;
    long long limit, remaining, retry_after, reset_after;
};

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

/* Makes a call. Returns the status and the numbers to answer a request with; a call without an answer is refused. The
 * connection is for one thread, and NULL until a call needs it. */
static struct answer throttle(redisContext **context, const char *key, long long max_burst, long long count,
                              long long period, unsigned quantity) {
    struct answer answer = {.status = 503, .retry_after = 1};
    if (!*context) *context = connection();
    redisReply *reply = NULL;
    if (!(*context)->err)
        reply = redisCommand(*context, "CL.THROTTLE %s %lld %lld %lld %u", key, max_burst, count, period, quantity);
    if (reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == 5) {
        redisReply **integers = reply->element;
        answer = (struct answer){200, integers[1]->integer, integers[2]->integer, integers[3]->integer,
                                 integers[4]->integer};
        /* A wait of -1 never ends: the call asks for more than the limit, which may be 0. */
        if (integers[0]->integer) answer.status = answer.retry_after >= 0 ? 429 : answer.limit ? 413 : 403;
    } else {
        fprintf(stderr, "Redis does not decide: %s\n", reply ? reply->str : (*context)->errstr);
        /* The connection may have a late reply, or lead to a server that a failover has made a replica. */
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
    /* The limiter allows three at once and one a minute; the last call asks for four tokens. */
    const unsigned quantities[] = {1, 1, 1, 1, 4};
    for (int i = 0; i < 5; i++) {
        struct answer answer = throttle(&context, "user123", 2, 1, 60, quantities[i]);
        if (answer.status == 503)
            printf("503 ");
        else
            printf("%d X-RateLimit-Limit: %lld, X-RateLimit-Remaining: %lld, X-RateLimit-Reset: %lld%s", answer.status,
                   answer.limit, answer.remaining, answer.reset_after, answer.retry_after < 0 ? "" : ", ");
        if (answer.retry_after >= 0) printf("Retry-After: %lld", answer.retry_after);
        printf("\n");
    }
    redisFree(context);
    return 0;
}
