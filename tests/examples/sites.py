"""A site of Flask or of FastAPI, whose paths answer in different ways, all by one limit of three a day.

Usage: HTTP_PORT=8080 sites.py flask | fastapi
"""

import os
import sys

from limits import Limit

ALL, BURST = Limit("all", (2, 1, 86400)), Limit("burst", (9, 10, 1))
# A view's own headers, of a service behind it.
OWN = {"X-RateLimit-Remaining": "abc", "X-RateLimit-Limit": "-1", "X-RateLimit-Reset": ""}
PORT, METHODS = int(os.environ["HTTP_PORT"]), ["GET", "OPTIONS"]


def flask_site():
    import flask
    from flask_app import app, limited

    async def asynchronous():
        flask.abort(404)

    views = {
        "/fails": lambda: 1 / 0,
        "/missing": lambda: flask.abort(404),
        "/async": asynchronous,
        "/moved": lambda: flask.redirect("/"),
        "/streamed": lambda: iter(["a", "b"]),
        "/own": lambda: ("Hello", OWN),
        "/stacked": limited(BURST)(lambda: "Hello"),
    }
    for path, view in views.items():
        app.add_url_rule(path, path, limited(ALL)(view), methods=METHODS)
    app.add_url_rule("/health", "/health", lambda: "Hello")
    app.run(port=PORT)


def fastapi_site():
    import uvicorn
    from fastapi import Depends, FastAPI, HTTPException
    from fastapi.responses import JSONResponse, RedirectResponse, StreamingResponse
    from fastapi_app import app, limited

    def refuse(status=401):
        raise HTTPException(status)

    def number(number: int):
        return number

    inner = FastAPI()
    for site, path, view, *further in (
        (app, "/missing", lambda: refuse(404)),
        (app, "/later", lambda: "Hello", Depends(lambda: refuse(401))),
        (app, "/number/{number}", number),
        (app, "/moved", lambda: RedirectResponse("/", 302)),
        (app, "/streamed", lambda: StreamingResponse(iter(["a", "b"]))),
        (app, "/own", lambda: JSONResponse("Hello", headers=OWN)),
        (app, "/stacked", lambda: "Hello", limited(BURST)),
        (app, "/fails", lambda: 1 / 0),
        (inner, "/fails", lambda: 1 / 0),
    ):
        site.add_api_route(path, view, methods=METHODS, dependencies=[limited(ALL), *further])
    app.mount("/inner", inner)
    app.add_api_route("/health", lambda: "Hello")
    uvicorn.run(app, port=PORT, proxy_headers=False)


{"flask": flask_site, "fastapi": fastapi_site}[sys.argv[1]]()
