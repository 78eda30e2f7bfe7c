"""A thousand calls, sent together and answered together.

To run this file, beside redis_py.py and limits.py: [REDIS_PORT=6379] TIMEOUT=1 python3 pipeline.py
"""

from limits import is_reply
from redis_py import connect

pipeline = connect().pipeline(transaction=False)
for number in range(1000):
    pipeline.execute_command("CL.THROTTLE", f"user:{number}", 2, 1, 60)
# An error is an element of the list, like any other answer. Here a call without five integers is not allowed.
answers = pipeline.execute(raise_on_error=False)
allowed = [is_reply(answer, 5) and answer[0] == 0 for answer in answers]
print("allowed:", allowed.count(True), "of", len(answers))
