"""A shop in Django; with its REST framework where that is installed."""

import importlib.util
import os
import signal
from threading import Thread
from wsgiref.simple_server import make_server

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import include, path, re_path
from opentelemetry.instrumentation.django import DjangoInstrumentor

REST = importlib.util.find_spec("rest_framework") is not None
settings.configure(
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    SECRET_KEY="of a test",  # noqa: S106
    LOGGING_CONFIG=None,
    INSTALLED_APPS=["rest_framework"] if REST else [],
    REST_FRAMEWORK={"UNAUTHENTICATED_USER": None, "DEFAULT_AUTHENTICATION_CLASSES": []},
)
django.setup()
DjangoInstrumentor().instrument()


def page(_: HttpRequest, **__: object) -> HttpResponse:
    return HttpResponse("a page")


def gone(_: HttpRequest) -> HttpResponse:
    raise Http404


def boom(_: HttpRequest) -> HttpResponse:
    raise ValueError("a fault of the shop")


urlpatterns = [
    re_path(r"^old/(?P<pk>[0-9]+)$", page),
    path("sub/", include([path("deep/<slug:pk>", page)])),
    path("gone", gone),
    path("boom", boom),
]
if REST:
    from rest_framework.decorators import action
    from rest_framework.response import Response
    from rest_framework.routers import DefaultRouter
    from rest_framework.viewsets import ViewSet

    class Items(ViewSet):
        def list(self, _: object) -> Response:
            return Response([])

        def retrieve(self, _: object, pk: str) -> Response:
            return Response(pk)

        @action(detail=True)
        def stock(self, _: object, pk: str) -> Response:
            return Response(pk)

    router = DefaultRouter(trailing_slash=False)
    router.register("api/items", Items, basename="item")
    urlpatterns += router.urls
else:
    urlpatterns += [
        path("api/items", page),
        path("api/items/<int:pk>", page),
        path("api/items/<int:pk>/stock", page),
    ]
server = make_server("127.0.0.1", int(os.environ["PORT"]), get_wsgi_application())
signal.signal(signal.SIGTERM, lambda *_: Thread(target=server.shutdown).start())
server.serve_forever()
