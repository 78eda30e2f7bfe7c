"""Django REST framework's throttles, behind one proxy."""

import os

from django.conf import settings

from page import REDIS_CELL, REST_FRAMEWORK

REST_FRAMEWORK["DEFAULT_THROTTLE_RATES"]["login"] = "3/day"
REST_FRAMEWORK |= {"DEFAULT_AUTHENTICATION_CLASSES": [], "UNAUTHENTICATED_USER": None}
SETTINGS = {"ALLOWED_HOSTS": ["*"], "ROOT_URLCONF": __name__, "SECRET_KEY": "of the tests"}
settings.configure(**SETTINGS, REDIS_CELL=REDIS_CELL, REST_FRAMEWORK=REST_FRAMEWORK)

from django.core.wsgi import get_wsgi_application
from django.urls import path
from rest_framework.response import Response
from rest_framework.views import APIView
from werkzeug.serving import run_simple

from redis_cell.rest_framework import ScopedRateThrottle


class View(APIView):
    throttle_scope = None

    def post(self, request):
        return Response("Welcome")


urlpatterns = [
    path("login", View.as_view(throttle_classes=[ScopedRateThrottle], throttle_scope="login")),
    path("user", View.as_view()),  # the throttles in the settings
]
run_simple("127.0.0.1", int(os.environ["HTTP_PORT"]), get_wsgi_application(), threaded=True)
