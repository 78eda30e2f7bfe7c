#!/bin/sh
# Starts the server under test, which can write no file beyond 32 KiB: this stands in for a full disk.
trap '' XFSZ
ulimit -f 64
exec "${SERVER:-redis-server}" "$@"
