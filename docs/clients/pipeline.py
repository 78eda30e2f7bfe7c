"""A thousand calls, sent together and answered together.

To run this file, beside redis_py.py and limits.py: [REDIS_PORT=6379] TIMEOUT=1 python3 pipeline.py
"""

from redis_py import connect

pipeline = connect().pipeline(transaction=False)
for number in range(1000):
    pipeline.execute_command("CL.THROTTLE", f"user:{number}", 2, 1, 60)
# An error is an element of the list, like any other answer. Here a call with an error is not allowed.
answers = pipeline.execute(raise_on_error=False)
allowed = [isinstance(answer, list) and answer[0] == 0 for answer in answers]
print("allowed:", allowed.count(True), "of", len(answers))
