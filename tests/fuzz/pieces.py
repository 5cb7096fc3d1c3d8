"""How do a fuzzer's bytes become a stream and the places where it is cut?"""


def split_input(data: bytes) -> tuple[bytes, list[bytes]]:
    """(the stream, the same in pieces). The first byte says how many cuts there are, two bytes each
    say where; 255 cuts everywhere."""
    count = data[0] if data else 0
    if count == 255:
        stream = data[1:]
        return stream, [stream[at : at + 1] for at in range(len(stream))]
    count %= 8
    places = [int.from_bytes(data[at : at + 2], "big") for at in range(1, 1 + 2 * count, 2)]
    stream = data[1 + 2 * count :]
    bounds = sorted(place % (len(stream) + 1) for place in places)
    starts, ends = [0, *bounds], [*bounds, len(stream)]
    pieces = [stream[start:end] for start, end in zip(starts, ends, strict=True)]
    return stream, [piece for piece in pieces if piece]


def make_input(stream: bytes, places: list[int]) -> bytes:
    """The opposite, for seeds: cut at these places, seven at most."""
    at = b"".join(place.to_bytes(2, "big") for place in places[:7])
    return bytes([len(places[:7])]) + at + stream
