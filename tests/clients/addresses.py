"""The address by which a caller is limited: behind your own proxy, and by what an IPv6 customer has."""

import ipaddress
import os

# The address of your own proxy, if requests come through one; "unix", if they come from it on a Unix socket.
PROXY = os.environ.get("PROXY")
# An IPv4 address that a NAT64 gateway has translated is in the last 32 bits.
NAT64 = ipaddress.ip_network("64:ff9b::/96")


def limited_address(peer, forwarded):
    """Returns it for a connection from peer, with these headers X-Forwarded-For."""
    peer = peer or "unix"
    if peer == PROXY:
        # The last word is the proxy's; those before it, the caller may have made up.
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
