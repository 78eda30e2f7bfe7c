"""Flask's example, and a blueprint whose view has the name of another view."""

import flask
import flask_app

admin = flask.Blueprint("admin", "admin")


@admin.get("/admin")
@flask_app.limited((0, 1, 60), fail="closed")
def hello():
    return "Welcome"


flask_app.app.register_blueprint(admin)
client = flask_app.app.test_client()
print(client.get("/").status_code, client.get("/admin").status_code)
