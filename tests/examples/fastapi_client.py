"""Calls of FastAPI's own test client on the site of the tests."""

from contextlib import suppress

from fastapi_site import app
from starlette.testclient import TestClient, WebSocketDisconnect

for _ in range(4):
    # Each has an event loop of its own.
    with TestClient(app, client=("127.0.0.1", 1)) as client:
        print(client.get("/").headers["X-RateLimit-Remaining"])
        with suppress(WebSocketDisconnect), client.websocket_connect("/socket"):
            print("open")
