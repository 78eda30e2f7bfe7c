"""A site of Flask or of FastAPI, whose paths answer in different ways, all by one limit of three a day.

Usage: HTTP_PORT=8080 sites.py flask | fastapi
"""

import os
import sys

from limits import Limit

ALL, BURST = Limit("all", (2, 1, 86400)), Limit("burst", (9, 10, 1))
# A view's own headers, of a service behind it.
OWN = {"X-RateLimit-Remaining": "abc", "X-RateLimit-Limit": "-1", "X-RateLimit-Reset": ""}
PORT = int(os.environ["HTTP_PORT"])


def flask_site():
    import flask
    import flask.views
    from flask_app import app, limited

    async def asynchronous():
        flask.abort(404)

    class Class(flask.views.MethodView):
        decorators = [limited(ALL)]
        get = lambda self: "Hello"

    route = lambda path, view, **settings: app.add_url_rule(path, path, limited(ALL)(view), **settings)
    route("/fails", lambda: 1 / 0)
    route("/missing", lambda: flask.abort(404))
    route("/async", asynchronous)
    route("/moved", lambda: flask.redirect("/"))
    route("/streamed", lambda: iter(["a", "b"]))
    route("/own", lambda: ("Hello", OWN))
    route("/stacked", limited(BURST)(lambda: "Hello"))
    route("/options", lambda: "Hello", methods=["GET", "OPTIONS"])
    app.add_url_rule("/class", view_func=Class.as_view("class"))
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

    def route(path, view, *others, **settings):
        app.add_api_route(path, view, dependencies=[limited(ALL), *others], **settings)

    route("/fails", lambda: 1 / 0)
    route("/missing", lambda: refuse(404))
    route("/later", lambda: "Hello", Depends(lambda: refuse(401)))
    route("/number/{number}", number)
    route("/moved", lambda: RedirectResponse("/", 302))
    route("/streamed", lambda: StreamingResponse(iter(["a", "b"])))
    route("/own", lambda: JSONResponse("Hello", headers=OWN))
    route("/stacked", lambda: "Hello", limited(BURST))
    route("/options", lambda: "Hello", methods=["GET", "OPTIONS"])
    inner = FastAPI()
    inner.add_api_route("/fails", lambda: 1 / 0, dependencies=[limited(ALL)])
    app.mount("/inner", inner)
    app.add_api_route("/health", lambda: "Hello")
    uvicorn.run(app, port=PORT, proxy_headers=False)


{"flask": flask_site, "fastapi": fastapi_site}[sys.argv[1]]()
