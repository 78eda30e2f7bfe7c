"""The example for FastAPI with routes that answer in further ways, by one limit of three a day. As a program, it opens
WebSockets by FastAPI's own test client."""

from contextlib import suppress

from fastapi import Depends, FastAPI, HTTPException, WebSocket
from fastapi_app import app, limited

QUOTA = 2, 1, 86400
SITE, BURST = limited("site", *QUOTA), limited("burst", 9, 10, 1)
CALLERS = {"acme": "acme", "7": 7, "": "", "an object": {"id": 7}, "an error": "\ud800"}


def missing():
    raise HTTPException(404)


def caller(request):
    return CALLERS.get(request.headers["X-Api-Key"])


async def passes(caller):
    return True


@app.websocket("/socket")
async def socket(websocket: WebSocket, limited=SITE):
    await websocket.accept()


mounted = FastAPI()
for site, path, view, *limits in (
    (app, "/fails", lambda: 1 / 0, SITE),
    (app, "/missing", lambda: "Hello", SITE, Depends(missing)),
    (mounted, "/both", lambda: "Hello", BURST, SITE),
    (app, "/caller", lambda: "Hello", limited("site", *QUOTA, caller=caller)),
    (app, "/passes", lambda: "Hello", limited("site", *QUOTA, unanswered=lambda caller: True)),
    (app, "/forgotten", lambda: "Hello", limited("site", *QUOTA, unanswered=passes)),
):
    site.add_api_route(path, view, methods=["GET", "OPTIONS"], dependencies=limits)
app.mount("", mounted)

if __name__ == "__main__":
    from starlette.testclient import TestClient, WebSocketDisconnect

    for _ in range(4):
        # Each client has an event loop of its own.
        with suppress(WebSocketDisconnect), TestClient(app, client=("127.0.0.1", 1)) as client:
            with client.websocket_connect("/socket"):
                print("open")
