"""Flask-Limiter, behind one proxy."""

from werkzeug.middleware.proxy_fix import ProxyFix

from page import app, limiter

app.wsgi_app = ProxyFix(app.wsgi_app)


@app.get("/zero")
@limiter.limit("0/day", key_func=lambda: "\ud800")
def zero():
    return "Never"
