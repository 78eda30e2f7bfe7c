"""The HTTP server's example, with a limit of 0 for each address."""

import os

import http_server

http_server.LIMITS["address"] = (-1, 1, 60, "open")
http_server.Server(("127.0.0.1", int(os.environ["HTTP_PORT"])), http_server.Handler).serve_forever()
