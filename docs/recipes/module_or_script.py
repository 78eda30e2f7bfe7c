"""CL.THROTTLE by the module where the server has it, and by gcra.lua where it has not.

To run this file: [REDIS_URL=redis://…] [REDIS_TIMEOUT=1] python3 module_or_script.py
"""

import os
from pathlib import Path

import redis


class Limiter:
    def __init__(self, client):
        self.client = client
        self.script = client.register_script(Path(__file__).with_name("gcra.lua").read_text())
        # Whether the server has the module; None until the client has asked.
        self.module = None

    def throttle(self, key, *words):
        """Calls CL.THROTTLE with these words. Returns its integers."""
        # A name may have half of a surrogate pair.
        key = key.encode(errors="surrogatepass") if isinstance(key, str) else key
        try:
            if self.module is None:
                # In one string: redis-py expects that a "COMMAND" always has a reply.
                self.module = self.client.execute_command("COMMAND INFO", "CL.THROTTLE") != [None]
            if not self.module:
                return self.script([key], words)
            return self.client.execute_command("CL.THROTTLE", key, *words)
        except redis.RedisError as error:
            # The next call may reach another server, with or without the module.
            self.module = None
            if "unknown command" not in str(error):
                raise
        # The server has lost the module, and this call has taken nothing yet.
        return self.script([key], words)


if __name__ == "__main__":
    # A repeated call would take twice, so there are no retries. The listed error closes the connection: after a
    # failover behind one address, it leads to a replica.
    once = {"retry": redis.retry.Retry(redis.backoff.NoBackoff(), 0), "retry_on_error": [redis.ReadOnlyError]}
    timeout = float(os.environ.get("REDIS_TIMEOUT") or 1)
    times = {"socket_timeout": timeout, "socket_connect_timeout": timeout}
    client = redis.Redis.from_url(os.environ.get("REDIS_URL") or "redis://127.0.0.1:6379", **times, **once)
    limiter = Limiter(client)
    # The limiter allows 10 at once and 10 a second, and 1,000 at once and 1,000 a day.
    answer = limiter.throttle("user123", 9, 10, 1, 1, 999, 1000, 86400)
    print(answer, "by the module" if limiter.module else "by the script")
