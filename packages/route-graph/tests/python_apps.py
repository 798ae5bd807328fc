"""Sample apps of FastAPI and Django, and what is true of their routes."""

from node_apps import App

# What a module's routes reach.
_ORDERS = {
    *("shop/api/orders.py", "shop/services/orders.py", "shop/services/prices.py"),
    *("shop/services/__init__.py", "shop/templates/mail/order.html"),
    "shop/templates/mail/base.html",
}
_CARTS = {
    *("shop/api/carts.py", "shop/api/downloads.py"),
    *("shop/services/__init__.py", "shop/services/prices.py"),
}
_VIEWS = {
    *("shop/views.py", "shop/cart.py", "shop/__init__.py"),
    *("shop/templates/shop/home.html", "shop/templates/shop/base.html"),
    "shop/templates/shop/foot.html",
}

FAST_API = App(
    files={
        "shop/__init__.py": "",
        "shop/main.py": """
import shop.telemetry
from fastapi import FastAPI
from fastapi.staticfiles import StaticFiles
from shop.api import router as api
from shop.core.config import settings
from shop.internal import admin


def create_app() -> FastAPI:
    app = FastAPI()
    app.include_router(api, prefix=settings.API_PREFIX)
    app.mount("/internal", admin)

    @app.exception_handler(KeyError)
    async def failed(request, error): ...

    return app


app = create_app()
""",
        "shop/telemetry.py": "",
        "shop/core/__init__.py": "",
        "shop/core/config.py": """
from pydantic import BaseModel


class Settings(BaseModel):
    VERSION: str = "v1"
    API_PREFIX: str = "/api/v1"


settings = Settings()
""",
        "shop/api/__init__.py": """
from fastapi import APIRouter

from . import orders
from .carts import router as carts

PREFIX = "/orders"
router = APIRouter()
router.include_router(orders.router, prefix=PREFIX)
router.include_router(carts)
""",
        "shop/api/orders.py": """
from typing import TYPE_CHECKING

from fastapi import APIRouter
from shop.services.orders import place

if TYPE_CHECKING:
    from shop.services.types import Order

router = APIRouter()


@router.get("/{order_id}")
@router.head("/{order_id}")
async def order(order_id: str): ...


@router.post("")
async def new():
    place()


@router.get("/{order_id}.pdf")
async def printed(order_id: str):
    return "mail/order.html"
""",
        "shop/api/carts.py": """
from fastapi import APIRouter

from ..services import prices
from .downloads import download

router = APIRouter(prefix="/carts")
router.add_api_route("/{cart:path}", download, methods=["GET"])


@router.websocket("/live")
async def live(socket): ...
""",
        "shop/api/downloads.py": "async def download(cart: str): ...",
        "shop/internal.py": """
from fastapi import FastAPI

admin = FastAPI()


@admin.get("/health")
def health(): ...
""",
        "shop/services/__init__.py": "",
        "shop/services/orders.py": "from .prices import price\n\n\ndef place(): ...",
        "shop/services/prices.py": "price = 1",
        "shop/services/types.py": "class Order: ...",
        "shop/templates/mail/order.html": "{% extends 'mail/base.html' %}",
        "shop/templates/mail/base.html": "",
        "tests/test_shop.py": "from shop.main import app",
    },
    routes={
        ("/api/v1/orders/{order_id}", "GET"): _ORDERS,
        ("/api/v1/orders/{order_id}", "HEAD"): _ORDERS,
        ("/api/v1/orders", "POST"): _ORDERS,
        ("/api/v1/carts/{cart:path}", "GET"): _CARTS,
        ("/api/v1/carts/live", ""): _CARTS,
        ("/internal/health", "GET"): {"shop/internal.py"},
    },
    everywhere={
        *("shop/main.py", "shop/__init__.py", "shop/telemetry.py", "shop/core/__init__.py"),
        *("shop/core/config.py", "shop/api/__init__.py"),
    },
)

DJANGO = App(
    files={
        "manage.py": """
import os
import sys

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "site_.settings.local")
from django.core.management import execute_from_command_line

execute_from_command_line(sys.argv)
""",
        "site_/__init__.py": "",
        "site_/settings/__init__.py": "",
        "site_/settings/base.py": """
SECRET_KEY = "-"
ROOT_URLCONF = "site_.urls"
MIDDLEWARE = ["django.middleware.common.CommonMiddleware", "site_.middleware.timing"]
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "rest_framework", "shop"]
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}]
USE_TZ = True
""",
        "site_/settings/local.py": "from .base import *\n\nDEBUG = True",
        "site_/middleware.py": "from shop.clock import now\n\n\ndef timing(get): return get",
        "site_/urls.py": """
from django.apps import apps
from django.contrib.auth.decorators import login_required
from django.urls import include, path, re_path
from django.views.generic import TemplateView

from shop import views
from shop.api import router

urlpatterns = [
    path("", views.home, name="home"),
    path("shop/", include("shop.urls")),
    path("about/", TemplateView.as_view(template_name="shop/about.html")),
    path("account/", login_required(views.Account.as_view())),
    path("api/", include(router.urls)),
    path("auth/", include("rest_framework.urls")),
    path("books/", include(apps.get_app_config("shop").urls[0])),
]
urlpatterns += [re_path(r"^archive/(?P<year>[0-9]{4})/(?P<rest>.+)$", views.archive)]
""",
        "shop/__init__.py": "",
        "shop/clock.py": "now = None",
        "shop/apps.py": """
from django.apps import AppConfig
from django.urls import path


class Shop(AppConfig):
    name = "shop"

    @property
    def urls(self):
        from .orders.views import receipt

        return [path("", receipt), path("<int:pk>/", receipt)], "books", "books"
""",
        "shop/urls.py": """
from django.urls import path

from .orders.views import OrderView, receipt

app_name = "shop"
orders = [path("<int:pk>/", OrderView.as_view()), path("<int:pk>-<slug:form>.pdf", receipt)]
urlpatterns = [path("orders/", (orders, "x", "y")), path("files/<path:name>", receipt)]
""",
        "shop/views.py": """
from django.shortcuts import render
from django.views import View

from shop.cart import cart


def home(request):
    return render(request, "shop/home.html", {"cart": cart})


class Account(View): ...


def archive(request, year, rest): ...
""",
        "shop/cart.py": "cart = 1",
        "shop/orders/__init__.py": "",
        "shop/orders/views.py": """
from django.views import View

from ..clock import now


class OrderView(View): ...


def receipt(request, **given): ...
""",
        "shop/api.py": """
from rest_framework.routers import DefaultRouter

from shop.viewsets import OrderViewSet

router = DefaultRouter()
router.include_root_view = False
router.include_format_suffixes = False
router.register("orders", OrderViewSet, basename="order")
""",
        "shop/viewsets.py": """
from rest_framework.decorators import action
from rest_framework.viewsets import ViewSet


class OrderViewSet(ViewSet):
    def list(self, request): ...

    def retrieve(self, request, pk=None): ...

    @action(detail=True, methods=["post"], url_path="cancel")
    def cancelled(self, request, pk=None): ...
""",
        "shop/templates/shop/home.html": "{% extends 'shop/base.html' %}",
        "shop/templates/shop/base.html": '{% include "shop/foot.html" %}',
        "shop/templates/shop/foot.html": "",
        "shop/templates/shop/about.html": "{% extends 'shop/base.html' %}",
    },
    routes={
        ("/", ""): _VIEWS,
        ("/account", ""): _VIEWS,
        ("/archive/{year}/{rest:path}", ""): _VIEWS,
        ("/about", ""): {
            *("shop/templates/shop/about.html", "shop/templates/shop/base.html"),
            "shop/templates/shop/foot.html",
        },
        ("/shop/orders/{pk}", ""): {"shop/urls.py", "shop/orders/views.py"},
        ("/shop/files/{name:path}", ""): {"shop/urls.py", "shop/orders/views.py"},
        ("/api/orders", ""): {"shop/api.py", "shop/viewsets.py"},
        ("/api/orders/{pk}", ""): {"shop/api.py", "shop/viewsets.py"},
        ("/api/orders/{pk}/cancel", ""): {"shop/api.py", "shop/viewsets.py"},
        ("/auth/:rest*", ""): set(),
        ("/books/:rest*", ""): set(),
    },
    everywhere={
        *("site_/settings/local.py", "site_/settings/base.py", "site_/middleware.py"),
        *("site_/urls.py", "shop/__init__.py", "shop/clock.py"),
    },
)
