import redis

once = {"retry": redis.retry.Retry(redis.backoff.NoBackoff(), 0), "retry_on_error": [redis.ReadOnlyError]}
client = redis.Redis(socket_timeout=0.1, socket_connect_timeout=0.1, **once)


def admit(user):
    limited, _, remaining, retry_after, _ = client.execute_command("CL.THROTTLE", user, 15, 30, 60)
    if limited:
        return 429, {"Retry-After": retry_after} if retry_after >= 0 else {}
    return 200, {"X-RateLimit-Remaining": remaining}
