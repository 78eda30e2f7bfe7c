"""Six attempts on an account and one from an address of the same name. Prints the kind of each that is kept out."""

import os

import ban
import redis

client = redis.Redis(port=int(os.environ["REDIS_PORT"]), retry=None)
accounts, addresses = ban.Door(client, "account"), ban.Door(client, "address")
for door in [accounts] * 6 + [addresses]:
    client.script_flush()
    try:
        door.attempt("192.0.2.7")
    except ban.KeptOut:
        print(door.kind)
