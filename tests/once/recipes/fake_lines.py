"""Calls the fake by the words of each line of input: the moment in ns, the key, and CL.THROTTLE's numbers."""

import sys

import fake

clock = [0]
client = fake.Fake(lambda: clock[0])
for line in sys.stdin:
    moment, key, *numbers = line.split()
    clock[0] = int(moment)
    print(*client.execute_command("CL.THROTTLE", key, *map(int, numbers)))
