"""A site with the throttles of the example for Django REST framework, behind NUM_PROXIES proxies."""

import json
import os
from types import SimpleNamespace

from django.conf import settings

settings.configure(
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    SECRET_KEY="of the tests",
    REST_FRAMEWORK={
        "DEFAULT_AUTHENTICATION_CLASSES": [], "UNAUTHENTICATED_USER": None,
        "NUM_PROXIES": json.loads(os.environ.get("NUM_PROXIES", "1")),
    },
)

from django.core.wsgi import get_wsgi_application
from django.urls import path
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import APIException, NotFound, Throttled
from rest_framework.response import Response
from rest_framework.views import APIView
from werkzeug.serving import run_simple

from django_rest import ApiThrottle, LoginThrottle


class Key(BaseAuthentication):
    def authenticate(self, request):
        key = request.headers.get("X-Api-Key")
        return key and (SimpleNamespace(pk={"secret-of-acme": "acme"}.get(key), is_authenticated=True), None)


class Passes(ApiThrottle):
    def unanswered(self, request):
        return True


class Forgotten(ApiThrottle):
    async def unanswered(self, request):
        return True


class View(APIView):
    authentication_classes, throttle_classes, error = [Key], [ApiThrottle], None

    def get(self, request):
        if self.error:
            raise self.error
        return Response("Hello")


class Own(View):
    def throttled(self, request, wait):
        raise Throttled(wait, "Not now.")


class Login(View):
    def post(self, request):
        if isinstance(request.data, dict) and request.data.get("password") == "correct horse":
            LoginThrottle().charge(request, -1)
        return Response("Welcome")


urlpatterns = [
    path("", View.as_view()),
    path("login", Login.as_view(throttle_classes=[LoginThrottle])),
    path("both", Login.as_view(throttle_classes=[ApiThrottle, LoginThrottle])),
    # Django answers an exception that REST framework does not know, and shows no headers.
    path("fails", View.as_view(error=APIException)),
    path("missing", View.as_view(error=NotFound)),
    path("throttled", Own.as_view()),
    path("passes", View.as_view(throttle_classes=[Passes])),
    path("forgotten", View.as_view(throttle_classes=[Forgotten])),
]
run_simple("127.0.0.1", int(os.environ["HTTP_PORT"]), get_wsgi_application(), threaded=True)
