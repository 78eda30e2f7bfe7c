import sys, os, redis, waiting
queue = waiting.Queue(redis.Redis(port=int(os.environ['REDIS_PORT'])), 'key', *map(int, sys.argv[1:]))
for line in sys.stdin:
    try:
        print(queue.turn(int(line)))
    except waiting.TooLong as error:
        print(-error.args[0])
