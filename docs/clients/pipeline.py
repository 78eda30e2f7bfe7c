"""A thousand calls, sent together and answered together. To run this: [REDIS_PORT=6379] python3 pipeline.py"""

import os

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

# A repeated call would take twice, so there are no retries. The listed error closes the connection: after a failover
# behind one address, it leads to a replica.
once = {"retry": Retry(NoBackoff(), 0), "retry_on_error": [redis.ReadOnlyError]}
times = {"socket_timeout": 1, "socket_connect_timeout": 1}
client = redis.Redis(port=int(os.environ.get("REDIS_PORT", 6379)), **times, **once)

pipeline = client.pipeline(transaction=False)
for number in range(1000):
    pipeline.execute_command("CL.THROTTLE", f"user:{number}", 2, 1, 60)
# An error is an element of the list, like any other answer. Here a call with an error is not allowed.
answers = pipeline.execute(raise_on_error=False)
allowed = [isinstance(answer, list) and answer[0] == 0 for answer in answers]
print("allowed:", allowed.count(True), "of", len(answers))
