"""Where a name may lead: nowhere but to the public Internet (S30)."""

import pytest

from reconcile.addresses import is_loopback, literal, why_refused

REFUSED = (
    "0.0.0.0",  # noqa: S104 - nothing is bound
    "0.1.2.3", "10.0.0.1", "100.64.0.1", "127.0.0.1", "127.255.255.254", "168.63.129.16", "169.254.169.254",
    "172.16.0.1", "172.31.255.255", "192.0.0.9", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1",
    "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::127.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b::808:808",
    "64:ff9b:1::1", "100::1", "2001::1", "2001:10::1", "2001:db8::1", "2002:7f00:1::", "2002:808:808::", "3fff::1",
    "5f00::1", "fc00::1", "fd00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1",
    "0x7f.1", "127.1", "2130706433", "localhost", "",
)  # fmt: skip
ALLOWED = (
    "1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.1", "168.63.129.15", "172.15.255.255", "172.32.0.1",
    "192.167.255.255", "223.255.255.255", "2600::1", "2606:4700:4700::1111", "2001:4860:4860::8888", "2a00:1450::1",
)  # fmt: skip


@pytest.mark.parametrize("address", REFUSED)
def test_what_is_not_one_machine_of_the_public_internet_is_refused_with_a_reason(address: str) -> None:
    assert why_refused(address)


@pytest.mark.parametrize("address", ALLOWED)
def test_a_public_address_is_allowed(address: str) -> None:
    assert why_refused(address) is None


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "[::1]", "10.1.2.3"])
def test_an_address_that_is_spelled_in_full_is_a_literal(host: str) -> None:
    assert literal(host) is not None


@pytest.mark.parametrize("host", ["0x7f.1", "127.1", "2130706433", "0177.0.0.1", "localhost", "ci.example.com"])
def test_what_only_some_readers_take_for_an_address_is_a_name(host: str) -> None:
    assert literal(host) is None


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.2", "127.255.255.254", "::1", "[::1]", "::ffff:127.0.0.1", "localhost", "LOCALHOST"]
)
def test_what_leads_to_this_machine_alone_is_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    ["", "0.0.0.0", "::", "10.0.0.1", "::ffff:10.0.0.1", "127.1", "api.localhost", "localhost.example", "box"],  # noqa: S104
)
def test_a_name_that_is_looked_up_is_no_loopback(host: str) -> None:
    assert not is_loopback(host)
