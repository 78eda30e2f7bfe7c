"""Prints the limited address for each peer, whose requests bear the same header."""

import sys

from addresses import limited_address

for peer in sys.argv[1:]:
    print(limited_address(peer, ["10.0.0.1, 192.0.2.7"]))
