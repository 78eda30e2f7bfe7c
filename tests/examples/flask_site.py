"""The example for Flask with views that answer in further ways, by one limit of three a day."""

import flask
from flask_app import Limit, app, limited

SITE, BURST = limited(Limit("site", (2, 1, 86400))), limited(Limit("burst", (9, 10, 1)))


async def asynchronous():
    flask.abort(404)


for path, view in {
    "/fails": lambda: 1 / 0,
    "/missing": lambda: flask.abort(404),
    "/moved": lambda: flask.redirect("/"),
    "/streamed": lambda: iter(["a", "b"]),
    # As of a service behind it.
    "/own": lambda: ("Hello", {"X-RateLimit-Remaining": "abc", "X-RateLimit-Limit": "-1"}),
    "/stacked": BURST(lambda: "Hello"),
    "/async": asynchronous,
}.items():
    app.add_url_rule(path, path, SITE(view), methods=["GET", "OPTIONS"])
app.add_url_rule("/health", "/health", lambda: "Hello")
