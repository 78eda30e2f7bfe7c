"""The address by which a caller is limited, also behind your own proxy. An IPv6 customer counts as one address."""

import ipaddress
import os

# The address of your own proxy, if there is one; "unix" if the proxy connects by a Unix socket.
PROXY = os.environ.get("PROXY")
# A NAT64 gateway puts a caller's IPv4 address into the last 32 bits of an address in this network.
NAT64 = ipaddress.ip_network("64:ff9b::/96")


def limited_address(peer, forwarded):
    """Returns this address for a request that came from `peer` with these X-Forwarded-For headers."""
    peer = peer or "unix"
    # A server on IPv6 that also accepts IPv4 sees 192.0.2.1 as ::ffff:192.0.2.1.
    if peer.removeprefix("::ffff:") == PROXY:
        # The proxy adds the last word; the caller may have invented those before it.
        peer = network(",".join(forwarded).split(",")[-1].strip()) or peer
    return network(peer) or peer


def network(word):
    """Returns the IPv4 address in a word, or the network of 2^64 addresses around its IPv6 address; otherwise None."""
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
