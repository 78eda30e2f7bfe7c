"""The example for FastAPI with routes that answer in further ways, by one limit of three a day."""

from fastapi import Depends, FastAPI, HTTPException, WebSocket
from fastapi.responses import JSONResponse, RedirectResponse, StreamingResponse
from fastapi_app import Limit, app, limited

SITE, BURST = limited(Limit("site", (2, 1, 86400))), limited(Limit("burst", (9, 10, 1)))


def refuse(status=401):
    raise HTTPException(status)


@app.websocket("/socket")
async def socket(websocket: WebSocket, limited=SITE):
    await websocket.accept()


inner = FastAPI()
app.mount("/inner", inner)
for site, path, view, *further in (
    (app, "/fails", lambda: 1 / 0),
    (app, "/missing", lambda: refuse(404)),
    (app, "/moved", lambda: RedirectResponse("/", 302)),
    (app, "/streamed", lambda: StreamingResponse(iter(["a", "b"]))),
    # As of a service behind it.
    (app, "/own", lambda: JSONResponse("", headers={"X-RateLimit-Remaining": "abc", "X-RateLimit-Limit": "-1"})),
    (app, "/stacked", lambda: "Hello", BURST),
    (app, "/later", lambda: "Hello", Depends(lambda: refuse())),
    (inner, "/fails", lambda: 1 / 0),
):
    site.add_api_route(path, view, methods=["GET", "OPTIONS"], dependencies=[SITE, *further])
app.add_api_route("/health", lambda: "Hello")
