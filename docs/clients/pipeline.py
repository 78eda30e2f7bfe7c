"""A thousand calls, sent together and answered together.

To run this file, beside redis_py.py: [REDIS_URL=redis://127.0.0.1:6379] REDIS_TIMEOUT=1 python3 pipeline.py
"""

from redis_py import client, shape_of

pipeline = client.pipeline(transaction=False)
for number in range(1000):
    pipeline.execute_command("CL.THROTTLE", f"user:{number}", 2, 1, 60)
# An error is an element of the list, like any other answer. Here a call without five integers is not allowed.
answers = pipeline.execute(raise_on_error=False)
allowed = [shape_of(answer) == [int] * 5 and answer[0] == 0 for answer in answers]
print("allowed:", allowed.count(True), "of", len(answers))
