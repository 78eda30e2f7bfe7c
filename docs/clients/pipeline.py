"""A thousand calls, sent together and answered together. To run this: [REDIS_PORT=6379] python3 pipeline.py"""

import os
import time

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

# A repeated call would take twice, so there are no retries. The listed error closes the connection: after a failover
# behind one address, it leads to a replica.
once = {"retry": Retry(NoBackoff(), 0), "retry_on_error": [redis.ReadOnlyError]}
times = {"socket_timeout": 1, "socket_connect_timeout": 1}
client = redis.Redis(port=int(os.environ.get("REDIS_PORT", 6379)), **times, **once)
client.ping()
USERS = [f"user:{number}" for number in range(1000)]

start = time.perf_counter()
pipeline = client.pipeline(transaction=False)
for user in USERS:
    pipeline.execute_command("CL.THROTTLE", user, 2, 1, 60)
# An error is an element of the list, like any other answer. Here a call with an error is not allowed.
together = pipeline.execute(raise_on_error=False)
middle = time.perf_counter()
allowed = [isinstance(answer, list) and answer[0] == 0 for answer in together]
print("allowed:", allowed.count(True), "of", len(USERS))

start_alone = time.perf_counter()
alone = [client.execute_command("CL.THROTTLE", user, 2, 1, 60) for user in USERS]
end = time.perf_counter()

print(f"together {1000 * (middle - start):.0f} ms, one by one {1000 * (end - start_alone):.0f} ms")
