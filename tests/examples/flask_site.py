"""Flask-Limiter, behind one proxy."""

from flask import Flask
from flask_limiter import Limiter
from flask_limiter.util import get_remote_address

import limits_storage  # adds redis-cell:// and gcra

app = Flask(__name__)
redis_cell = {"app": app, "storage_uri": "redis-cell://", "strategy": "gcra", "headers_enabled": True}
# Fails closed: while Redis does not answer, requests are refused with 503.
closed = Limiter(get_remote_address, **redis_cell)
# Falls back: while Redis does not answer, each process counts in its own memory.
fallback = Limiter(get_remote_address, in_memory_fallback_enabled=True, **redis_cell)


@app.post("/login")
@closed.limit("3/day")
def login():
    return "Welcome"


@app.get("/")
@fallback.limit("3/day")
def hello():
    return "Hello"


from werkzeug.middleware.proxy_fix import ProxyFix

app.wsgi_app = ProxyFix(app.wsgi_app)


@app.get("/zero")
@closed.limit("0/day", key_func=lambda: "\ud800")
def zero():
    return "Never"
