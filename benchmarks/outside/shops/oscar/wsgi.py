"""The shop, as gunicorn serves it."""

from django.core.wsgi import get_wsgi_application

application = get_wsgi_application()
