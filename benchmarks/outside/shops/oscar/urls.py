"""The addresses of the shop: Oscar's own, its API, and one view that fails for a product."""

from django.apps import apps
from django.urls import include, path
from oscarapi.views.basket import AddProductView
from rest_framework.request import Request
from rest_framework.response import Response


class Failing(AddProductView):
    """Adds a book to the basket, unless it is the third."""

    def post(self, request: Request, **given: object) -> Response:
        """Adds the book."""
        if request.data["url"].endswith("/3/"):
            raise RuntimeError
        return super().post(request, **given)


urlpatterns = [
    path("api/basket/add-product/", Failing.as_view()),
    path("api/", include("oscarapi.urls")),
    path("", include(apps.get_app_config("oscar").urls[0])),
]
