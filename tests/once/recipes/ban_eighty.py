"""Eighty guesses at one account at the same time. Prints how many were tried, how many were kept out, and the waits."""

import os
import threading
import time

import ban
import redis


def guess():
    door = ban.Door(redis.Redis(port=int(os.environ["REDIS_PORT"]), retry=None), "account")
    ready.wait()
    try:
        door.attempt("alice")
        tried.append(1)
        time.sleep(0.2)
    except ban.KeptOut as error:
        waits.append(error.args[0])


ready, tried, waits = threading.Barrier(80), [], []
threads = [threading.Thread(target=guess) for _ in range(80)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(tried), len(waits), set(waits))
