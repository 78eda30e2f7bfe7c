"""Calls CL.THROTTLE by module_or_script.py with the words of each line of input."""

import os
import sys

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

sys.path.append("../recipes")
from module_or_script import Limiter

once = {"retry": Retry(NoBackoff(), 0), "retry_on_error": [redis.ReadOnlyError]}
limiter = Limiter(redis.Redis(port=int(os.environ["REDIS_PORT"]), socket_timeout=1, **once))
for line in sys.stdin:
    try:
        answer = limiter.throttle(*line.split())
        print(*answer, "module" if limiter.module else "script")
    except redis.RedisError as error:
        print(type(error).__name__)
