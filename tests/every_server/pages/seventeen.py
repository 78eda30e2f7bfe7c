"""Asks the README's lines 17 times whether they admit a user. Prints each answer."""

import os

import readme
import redis

readme.client = redis.Redis.from_url(os.environ["REDIS_URL"])
for _ in range(17):
    print(readme.admit("user123"))
