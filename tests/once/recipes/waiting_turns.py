"""Takes a turn for each line of input, which has the tokens. Prints the wait, negative if it is too long.

Usage: waiting_turns.py NUMBER..., those of a queue
"""

import os
import sys

import redis
import waiting

queue = waiting.Queue(redis.Redis(port=int(os.environ["REDIS_PORT"])), "key", *map(int, sys.argv[1:]))
for line in sys.stdin:
    try:
        print(queue.turn(int(line)))
    except waiting.TooLong as error:
        print(-error.args[0])
    except ValueError as error:
        print(error)
