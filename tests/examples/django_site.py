"""A site with the throttles of the example for Django REST framework, behind NUM_PROXIES proxies."""

import os
from types import SimpleNamespace

from django.conf import settings

proxies = os.environ.get("NUM_PROXIES", "1")
settings.configure(
    ALLOWED_HOSTS=["*"],
    INSTALLED_APPS=["rest_framework"],
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}],
    ROOT_URLCONF=__name__,
    SECRET_KEY="of the tests",
    REST_FRAMEWORK={
        "DEFAULT_AUTHENTICATION_CLASSES": [], "UNAUTHENTICATED_USER": None,
        "EXCEPTION_HANDLER": f"{__name__}.handle", "NUM_PROXIES": int(proxies) if proxies else None,
    },
)

from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse, StreamingHttpResponse
from django.urls import path, resolve
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import Throttled
from rest_framework.response import Response
from rest_framework.views import APIView, exception_handler
from werkzeug.serving import run_simple

import django_rest


class Key(BaseAuthentication):
    def authenticate(self, request):
        key = request.headers.get("X-Api-Key")
        return key and (SimpleNamespace(pk=None if key == "unsaved" else 7, is_authenticated=True), None)


class Passes(django_rest.ApiThrottle):
    def unanswered(self, request):
        return True


class Forgotten(django_rest.ApiThrottle):
    async def unanswered(self, request):
        return True


def handle(error, context):
    response = exception_handler(error, context)
    if isinstance(error, Throttled):
        response["X-Wait"] = str(error.wait)
    # A handler of the site's own may forget it.
    if response is not None:
        response.headers.pop("Retry-After", None)
    return response


class View(APIView):
    authentication_classes, throttle_classes, answer = [Key], [django_rest.ApiThrottle], None

    def get(self, request):
        return self.answer()


class Own(View):
    def throttled(self, request, wait):
        raise Throttled(wait, "Not now")


class Login(APIView):
    throttle_classes = [django_rest.LoginThrottle]

    def get(self, request):
        return Response("Hello")

    def post(self, request):
        if isinstance(request.data, dict) and request.data.get("password") == "correct horse":
            django_rest.LoginThrottle().charge(request, -1)
        return Response("Welcome")


hello = lambda: Response("Hello")
urlpatterns = [
    path("", View.as_view(answer=hello)),
    path("login", Login.as_view()),
    path("both", Login.as_view(throttle_classes=[django_rest.ApiThrottle, django_rest.LoginThrottle])),
    path("missing", View.as_view(answer=lambda: resolve("/none"))),  # raises a 404
    path("streamed", View.as_view(answer=lambda: StreamingHttpResponse(iter([b"a", b"b"])))),
    path("throttled", Own.as_view(answer=hello)),
    path("passes", View.as_view(answer=hello, throttle_classes=[Passes])),
    path("forgotten", View.as_view(answer=hello, throttle_classes=[Forgotten])),
    path("health", lambda request: HttpResponse("Hello")),
]
run_simple("127.0.0.1", int(os.environ["HTTP_PORT"]), get_wsgi_application(), threaded=True)
