"""An HTTP server that lets each address in three times at once, and then once a minute.

As a program: [REDIS_PORT=6379] [HTTP_PORT=8080] python3 http_server.py
"""

import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import redis

from redis_py import throttle


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        status, headers = throttle(client, "address:" + self.client_address[0], 2, 1, 60)
        body = b"Hello\n" if status == 200 else b"Too many requests\n"
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", len(body))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    client = redis.Redis(port=int(os.environ.get("REDIS_PORT", 6379)))
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("HTTP_PORT", 8080))), Handler)
    print(f"http://127.0.0.1:{server.server_port}/", flush=True)
    server.serve_forever()
