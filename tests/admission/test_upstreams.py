"""Where is the engine?"""

import pytest
from giveway_admission.upstreams import Upstream, UpstreamError, parse_upstream


@pytest.mark.parametrize(
    ("url", "upstream", "authority"),
    [
        (
            "http://127.0.0.1:8000",
            Upstream(host="127.0.0.1", port=8000, secure=False, prefix=""),
            "127.0.0.1:8000",
        ),
        (
            "https://llm.example/a/b/",
            Upstream(host="llm.example", port=443, secure=True, prefix="/a/b"),
            "llm.example",
        ),
        (
            "http://[::1]:80/",
            Upstream(host="::1", port=80, secure=False, prefix=""),
            "[::1]",
        ),
        (
            "http://[fe80::1%eth0]:8000",
            Upstream(host="fe80::1%eth0", port=8000, secure=False, prefix=""),
            "[fe80::1%eth0]:8000",
        ),
        (
            "http://bücher.example\n",
            Upstream(host="xn--bcher-kva.example", port=80, secure=False, prefix=""),
            "xn--bcher-kva.example",
        ),
    ],
)
def test_a_url_is_taken_apart(url: str, upstream: Upstream, authority: str) -> None:
    """Host, port, TLS and the path before all paths."""
    assert parse_upstream(url) == upstream
    assert parse_upstream(url).authority == authority


@pytest.mark.parametrize(
    "url",
    [
        *("", "127.0.0.1:8000", "ftp://a", "http://", "http://a:99999", "http://a:b"),
        *("http://u:p@a", "http://a?x=1", "http://a#x", "http://[::1"),
        *("http://a..b", f"http://{'a' * 64}", "http://a b", "http://a:0", "http://a/ä"),
        *(
            "http://a/b c",
            "http://a/b\r\nX-Injected: d",
            "http://a\0b",
            "http://a/v1",
            "http://a/team/v1/",
        ),
    ],
)
def test_what_is_no_engines_url_is_refused_with_an_example(url: str) -> None:
    """The message says what would be right."""
    with pytest.raises(UpstreamError, match=r"for example http://127\.0\.0\.1:8000"):
        parse_upstream(url)
