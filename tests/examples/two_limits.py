"""Two limits of one route, and one limit of two routes.

Usage: HTTP_PORT=8080 two_limits.py flask | fastapi
"""

import os
import sys

from limits import Limit

BURST, DAY, BOTH = Limit("burst", (9, 10, 1)), Limit("day", (2, 1, 86400)), Limit("both", (2, 1, 86400))
port = int(os.environ["HTTP_PORT"])

if sys.argv[1] == "flask":
    from flask_app import app, limited

    @app.get("/stacked")
    @limited(BURST)
    @limited(DAY)
    def stacked():
        return "Hello"

    @app.get("/one")
    @limited(BOTH)
    def one():
        return "Hello"

    @app.get("/other/<number>")
    @limited(BOTH)
    def other(number):
        return "Hello"

    app.run(port=port)
else:
    import uvicorn
    from fastapi_app import app, limited

    @app.get("/stacked", dependencies=[limited(BURST), limited(DAY)])
    async def stacked():
        return "Hello"

    @app.get("/one", dependencies=[limited(BOTH)])
    async def one():
        return "Hello"

    @app.get("/other/{number}", dependencies=[limited(BOTH)])
    async def other(number: int):
        return "Hello"

    uvicorn.run(app, port=port, proxy_headers=False)
