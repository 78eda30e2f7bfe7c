"""The example for FastAPI with routes that answer in further ways, by one limit of three a day."""

from fastapi import Depends, FastAPI, HTTPException, WebSocket
from fastapi.responses import JSONResponse, StreamingResponse
from fastapi_app import LimitedAPI, app, limited

SITE, BURST = limited("site", 2, 1, 86400), limited("burst", 9, 10, 1)
CALLERS = {"acme": "acme", "7": 7, "": "", "an object": {"id": 7}, "a list": ["acme"], "half a letter": "\ud800"}


def refuse(status=401):
    raise HTTPException(status)


def caller(request):
    return CALLERS.get(request.headers["X-Api-Key"])


async def passes(caller):
    return True


@app.exception_handler(HTTPException)
async def own(request, error):
    return JSONResponse({"error": error.detail}, error.status_code)


@app.websocket("/socket")
async def socket(websocket: WebSocket, limited=SITE):
    await websocket.accept()


inner, limited_inner = FastAPI(), LimitedAPI()
app.mount("/inner", inner)
app.mount("/limited_inner", limited_inner)
for site, path, view, *limits in (
    (app, "/fails", lambda: 1 / 0, SITE),
    (app, "/missing", lambda: refuse(404), SITE),
    (app, "/streamed", lambda: StreamingResponse(iter(["a", "b"])), SITE),
    (app, "/stacked", lambda: "Hello", BURST, SITE),
    (app, "/later", lambda: "Hello", SITE, Depends(lambda: refuse())),
    (inner, "/fails", lambda: 1 / 0, SITE),
    (limited_inner, "/fails", lambda: 1 / 0, SITE),
    (app, "/caller", lambda: "Hello", limited("site", 2, 1, 86400, caller=caller)),
    (app, "/passes", lambda: "Hello", limited("site", 2, 1, 86400, unanswered=lambda caller: True)),
    (app, "/forgotten", lambda: "Hello", limited("site", 2, 1, 86400, unanswered=passes)),
    (app, "/health", lambda: "Hello"),
):
    site.add_api_route(path, view, methods=["GET", "OPTIONS"], dependencies=limits)
