"""The dependency for FastAPI, behind one proxy, whose address uvicorn trusts."""

from page import app, limited


@app.get("/zero", dependencies=[limited("zero", -1, 1, 86400, key=lambda: "\ud800")])
async def zero():
    return "Never"
