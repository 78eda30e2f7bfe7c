"""A site with the throttles of the example for Django REST framework, and views that answer in further ways."""

import os

from django.conf import settings

settings.configure(
    ALLOWED_HOSTS=["*"],
    MIDDLEWARE=["django_rest.headers"],
    ROOT_URLCONF=__name__,
    SECRET_KEY="of the tests",
    REST_FRAMEWORK={"DEFAULT_AUTHENTICATION_CLASSES": [], "UNAUTHENTICATED_USER": None},
)

from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse, HttpResponseRedirect, StreamingHttpResponse
from django.urls import path, resolve
from rest_framework.decorators import api_view, throttle_classes
from rest_framework.response import Response
from rest_framework.views import APIView
from werkzeug.serving import run_simple

import django_rest


def view(answer):
    return api_view(["GET"])(throttle_classes([django_rest.ApiThrottle])(lambda request: answer()))


class Login(APIView):
    throttle_classes = [django_rest.LoginThrottle]

    def get(self, request):
        django_rest.give_back(request)
        return Response("Hello")

    def post(self, request):
        if isinstance(request.data, dict) and request.data.get("password") == "correct horse":
            django_rest.give_back(request)
        return Response("Welcome")


# Three attempts at once and one a day: no token comes back while a test runs.
django_rest.ACCOUNT = django_rest.Limit("login_account", (2, 1, 86400), fail="closed")
urlpatterns = [
    path("", view(lambda: Response("Hello"))),
    path("login", Login.as_view()),
    path("both", Login.as_view(throttle_classes=[django_rest.ApiThrottle, django_rest.LoginThrottle])),
    path("fails", view(lambda: 1 / 0)),
    path("missing", view(lambda: resolve("/none"))),  # raises a 404
    path("moved", view(lambda: HttpResponseRedirect("/"))),
    path("streamed", view(lambda: StreamingHttpResponse(iter([b"a", b"b"])))),
    path("own", view(lambda: Response("Hello", headers={"X-RateLimit-Remaining": "abc", "X-RateLimit-Limit": "-1"}))),
    path("health", lambda request: HttpResponse("Hello")),
]
run_simple("127.0.0.1", int(os.environ["HTTP_PORT"]), get_wsgi_application(), threaded=True)
