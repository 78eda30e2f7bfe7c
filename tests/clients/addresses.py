"""The address by which a caller is limited, also behind your own proxy; an IPv6 customer has many addresses."""

import ipaddress
import os

# The address of your own proxy, if there is one; "unix" if requests come from it on a Unix socket.
PROXY = os.environ.get("PROXY")
# A NAT64 gateway puts a caller's IPv4 address into the last 32 bits of an address in this network.
NAT64 = ipaddress.ip_network("64:ff9b::/96")


def limited_address(peer, forwarded):
    """Returns that address for a connection from peer with these X-Forwarded-For headers."""
    peer = peer or "unix"
    if peer == PROXY:
        # The proxy adds the last word; the caller may have invented those before it.
        peer = network(",".join(forwarded).split(",")[-1].strip()) or peer
    return network(peer) or peer


def network(word):
    """Returns an IPv4 address, or the 2^64 addresses around one of IPv6, without a port; None for any other word."""
    if word.startswith("["):
        word = word[1:].partition("]")[0]
    elif word.count(":") == 1:
        word = word.partition(":")[0]
    try:
        address = ipaddress.ip_address(word)
    except ValueError:
        return None
    if address.version == 4:
        return str(address)
    if address in NAT64:
        return str(ipaddress.IPv4Address(int(address) % 2**32))
    return str(address.ipv4_mapped or ipaddress.ip_network((int(address), 64), strict=False))
