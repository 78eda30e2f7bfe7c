"""The address by which a caller is limited, also behind your own proxy. An IPv6 customer counts as one address."""

import ipaddress
import os

# A NAT64 gateway puts a caller's IPv4 address into the last 32 bits of an address in this network.
NAT64 = ipaddress.ip_network("64:ff9b::/96")


def parse(word):
    """Returns the address in a word, or None. That of ::ffff:192.0.2.1 is the IPv4 address in it."""
    try:
        address = ipaddress.ip_address(word)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


# The address of your own proxy, if there is one; "unix" if the proxy connects by a Unix socket.
PROXY = os.environ.get("PROXY", "")
if PROXY not in ("", "unix") and parse(PROXY) is None:
    raise ValueError(f"PROXY={PROXY} is no address")


def limited_address(peer, forwarded):
    """Returns this address for a request that came from `peer` with these X-Forwarded-For headers."""
    peer = peer or "unix"
    # Compare addresses, not their texts: an address of IPv6 has several.
    if (parse(peer) or peer) == (parse(PROXY) or PROXY):
        # The proxy adds the last word; the caller may have invented those before it.
        peer = network(",".join(forwarded).split(",")[-1].strip()) or peer
    return network(peer) or peer


def network(word):
    """Returns the IPv4 address in a word, or the network of 2^64 addresses around its IPv6 address; otherwise None."""
    if word.startswith("["):
        word = word[1:].partition("]")[0]
    elif word.count(":") == 1:
        word = word.partition(":")[0]
    address = parse(word)
    if address is None:
        return None
    if address.version == 4:
        return str(address)
    if address in NAT64:
        return str(ipaddress.IPv4Address(int(address) % 2**32))
    return str(ipaddress.ip_network((int(address), 64), strict=False))
