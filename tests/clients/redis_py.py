"""Rate limiting with redis-py. As a program: [REDIS_PORT=6379] python3 redis_py.py"""

import os

import redis


def throttle(client, key, max_burst, count, period, quantity=1):
    """Makes a call, and returns the status and the headers to answer an HTTP request with."""
    limited, limit, remaining, retry_after, reset_after = client.execute_command(
        "CL.THROTTLE", key, max_burst, count, period, quantity
    )
    headers = {
        "X-RateLimit-Limit": limit,
        "X-RateLimit-Remaining": remaining,
        "X-RateLimit-Reset": reset_after,
    }
    # -1 where the call was allowed, and where it asks for more than the limit and never will be.
    if retry_after >= 0:
        headers["Retry-After"] = retry_after
    return 429 if limited else 200, headers


if __name__ == "__main__":
    client = redis.Redis(port=int(os.environ.get("REDIS_PORT", 6379)))
    # Three at once and one a minute; the last call asks for four.
    for quantity in 1, 1, 1, 1, 4:
        status, headers = throttle(client, "user123", 2, 1, 60, quantity)
        print(status, ", ".join(f"{name}: {value}" for name, value in headers.items()))
