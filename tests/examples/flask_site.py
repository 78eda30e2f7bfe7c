"""The example for Flask behind one proxy, with views that answer in further ways, by one limit of three a day."""

import flask
from flask_app import app, limited
from werkzeug.middleware.proxy_fix import ProxyFix

app.wsgi_app = ProxyFix(app.wsgi_app, x_for=1)
QUOTA = 2, 1, 86400
SITE, BURST = limited("site", *QUOTA), limited("burst", 9, 10, 1)
CALLERS = {"acme": "acme", "7": 7, "": "", "an object": {"id": 7}, "an error": "\ud800"}


async def missing():
    flask.abort(404)


async def caller(request):
    return CALLERS.get(request.headers["X-Api-Key"])


async def passes(caller):
    return True


for path, view in {
    "/missing": SITE(missing),
    "/both": BURST(SITE(lambda: "Hello")),
    "/caller": limited("site", *QUOTA, caller=caller)(lambda: "Hello"),
    "/passes": limited("site", *QUOTA, unanswered=passes)(lambda: "Hello"),
    "/forgotten": limited("site", *QUOTA, unanswered=lambda caller: passes(caller))(lambda: "Hello"),
}.items():
    app.add_url_rule(path, path, view, methods=["GET", "OPTIONS"])
blueprint = flask.Blueprint("blueprint", "blueprint")
blueprint.before_request(SITE(lambda: None))
blueprint.add_url_rule("/fails", "fails", lambda: 1 / 0)
app.register_blueprint(blueprint)
