import sys, fake
clock = [0]
client = fake.Fake(lambda: clock[0])
for line in sys.stdin:
    clock[0], key, *numbers = line.split()
    clock[0] = int(clock[0])
    print(*client.execute_command('CL.THROTTLE', key, *map(int, numbers)))
