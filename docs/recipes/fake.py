"""CL.THROTTLE in memory, for unit tests without a server: a client that decides as the module does.

To run this file: python3 fake.py
"""

import time


class Fake:
    def __init__(self, now=time.time_ns):
        self.now, self.tats = now, {}

    def execute_command(self, command, key, max_burst, count, period, quantity=1):
        assert command == "CL.THROTTLE", f"{command} needs a server"
        bounds = {"max_burst": -1, "count": 1, "period": 1, "quantity": -(2**63)}
        for (name, least), number in zip(bounds.items(), (max_burst, count, period, quantity)):
            assert type(number) is int and least <= number < 2**63, f"{name} must be a whole number from {least} on"
        now, limit, period = self.now(), max_burst + 1, period * 10**9
        tat, all_tokens = max(self.tats.get(key, now), now), limit * period // count
        assert count <= period and now + all_tokens < 2**63, "max_burst, count and period: more than the module counts"
        new = tat + quantity * period // count if quantity >= 0 else tat - -quantity * period // count
        limited = quantity >= 0 and (quantity > limit or new - all_tokens > now)
        wait = -1 if not limited or quantity > limit else -(-(new - all_tokens - now) // 10**9)
        self.tats[key] = tat if limited else new
        rest = max(self.tats[key] - now, 0)
        remaining = min(max(((all_tokens - rest + 1) * count - 1) // period, 0), limit)
        return [int(limited), limit, remaining, wait, -(-rest // 10**9)]


if __name__ == "__main__":
    clock = [0]
    client = Fake(lambda: clock[0])
    for clock[0] in 0, 0, 0, 60 * 10**9:
        print(client.execute_command("CL.THROTTLE", "alice", 1, 1, 60))
