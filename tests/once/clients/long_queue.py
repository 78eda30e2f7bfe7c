"""Flask's own command, whose server queues 1,000 connections at once. It usually queues 128."""

from flask import cli
from werkzeug import serving

serving.LISTEN_QUEUE = serving.BaseWSGIServer.request_queue_size = 1000
cli.main()
