"""A shop in Flask."""

import os
import signal
from threading import Thread
from wsgiref.simple_server import make_server

from flask import Flask, abort
from opentelemetry.instrumentation.flask import FlaskInstrumentor

app = Flask(__name__)
FlaskInstrumentor().instrument_app(app)


@app.get("/api/items")
@app.get("/api/items/<int:pk>")
@app.get("/api/items/<int:pk>/stock")
@app.get("/old/<pk>")
@app.get("/sub/deep/<string(length=1):pk>")
def page(pk: object = None) -> str:
    return f"a page {pk}"


@app.get("/gone")
def gone() -> None:
    abort(404)


@app.get("/boom")
def boom() -> None:
    raise ValueError("a fault of the shop")


server = make_server("127.0.0.1", int(os.environ["PORT"]), app)
signal.signal(signal.SIGTERM, lambda *_: Thread(target=server.shutdown).start())
server.serve_forever()
