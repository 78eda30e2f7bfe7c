"""Four turns of a queue of three a second, whose longest wait is a second; and turns for too many tokens or none."""

import os

import redis
import waiting

client = redis.Redis(port=int(os.environ["REDIS_PORT"]))
queue = waiting.Queue(client, "key", 0, 3, 1000, 1000)
print([queue.turn() for _ in range(4)])
for tokens in 2, 0, -1:
    try:
        print(queue.turn(tokens))
    except ValueError as error:
        print(error)
