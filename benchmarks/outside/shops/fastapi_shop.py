"""A shop in FastAPI, with a mounted application."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI, HTTPException
from opentelemetry import trace
from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Sends the last spans: uvicorn ends by its signal, and nothing runs at Python's exit."""
    yield
    trace.get_tracer_provider().shutdown()


app, below = FastAPI(lifespan=lifespan), FastAPI()


@app.get("/api/items")
@app.get("/api/items/{pk}")
@app.get("/api/items/{pk}/stock")
@app.get("/old/{pk}")
@below.get("/deep/{pk}")
def page() -> str:
    return "a page"


@app.get("/gone")
def gone() -> None:
    raise HTTPException(404)


@app.get("/boom")
def boom() -> None:
    raise ValueError("a fault of the shop")


app.mount("/sub", below)
FastAPIInstrumentor.instrument_app(app)
uvicorn.run(app, port=int(os.environ["PORT"]), log_level="critical")
