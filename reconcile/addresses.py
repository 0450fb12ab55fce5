"""Which addresses a name may lead to: only those of the public Internet, one machine each; and which are here. Pure.

What a configuration spells out is trusted as it is written; what a name resolves to is somebody else's word, and may
point into our own network, at a cloud's metadata service or back at this machine (S30). `is_global` of the standard
library is not enough: it passes multicast, relays, and one cloud's own services.
"""

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

#: Not for one machine of the public Internet, by what each is (IANA special-purpose registries, RFC 6890 and later).
_IPV4: Final = tuple(
    (ip_network(network), told)
    for network, told in (
        ("0.0.0.0/8", "this network"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "a carrier's own"),
        ("127.0.0.0/8", "loopback"),
        ("168.63.129.16/32", "Azure's own services"),  # learn.microsoft.com, "What is IP address 168.63.129.16?"
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "protocol assignments"),
        ("192.0.2.0/24", "documentation"),
        ("192.88.99.0/24", "a 6to4 relay"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "benchmarking"),
        ("198.51.100.0/24", "documentation"),
        ("203.0.113.0/24", "documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
    )
)
#: The one block of IPv6 out of which global unicast addresses are given (RFC 4291, IANA).
_GIVEN_OUT: Final = IPv6Network("2000::/3")
#: What of it is for something else; two of them carry an IPv4 address, which may be any.
_IPV6: Final = tuple(
    (ip_network(network), told)
    for network, told in (
        ("2001::/23", "protocol assignments, Teredo among them"),
        ("2001:db8::/32", "documentation"),
        ("2002::/16", "6to4"),
        ("3fff::/20", "documentation"),
    )
)


def literal(host: str) -> IPv4Address | IPv6Address | None:
    """The address that a host spells out in full; None for a name, and for what only some readers take for one.

    `127.1`, `0x7f.1` and `2130706433` are such: they are asked for like a name, and what comes of it is judged.
    """
    try:
        return ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    """Whether a host as it is written leads to this machine alone.

    Of names only `localhost` itself: those below it are looked up like any other, and may come out elsewhere.
    """
    address = literal(host)
    if address is None:
        return host.lower() == "localhost"
    # Which releases of Python see through an address that carries another one, differs.
    carried = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (carried or address).is_loopback


def why_refused(text: str) -> str | None:
    """Why nothing is sent to an address that a name led to, in a few words; None: it is public."""
    address = literal(text)
    if address is None:
        return "no address"
    if isinstance(address, IPv6Address) and address not in _GIVEN_OUT:
        return "loopback" if address.is_loopback else "not of the public Internet"
    known = _IPV4 if isinstance(address, IPv4Address) else _IPV6
    told = next((told for network, told in known if address in network), None)
    return told if told is not None or address.is_global else "not of the public Internet"
