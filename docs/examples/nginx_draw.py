"""The first part of nginx's split_clients, by its own hash."""


def in_first_part(text: str, percent: float) -> bool:
    """Tells whether `split_clients` gives a text its first part: by MurmurHash2 of 32 bits."""
    data, m, mask = text.encode(), 0x5BD1E995, 0xFFFFFFFF
    whole, h = len(data) // 4 * 4, len(data)
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = h * m & mask ^ k
    if tail := data[whole:]:
        h = (h ^ int.from_bytes(tail, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15 < round(percent * 100) * mask // 10000
