"""Damage bytes at random: flips, cuts, copies, extreme numbers, and words that parsers stumble over."""

import io
import lzma
import re
import zipfile

import numpy as np

TAR_FIELDS = ((0, 100), (124, 136), (124, 136), (156, 157), (157, 257), (345, 500), (482, 495))
TAR_VALUES = (b"00000000000", b"77777777777", b"S", b"x", b"g", b"L", b"1", b"2", b"../../x", b"/etc/passwd")
NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
NUMBERS = (b"-1", b"0", b"1e999", b"NaN", b"99999999999999999999", b"2147483648", b"-9223372036854775809", b"1e-400")
WORDS = (
    *(b"\t", b"\n", b"\r\n", b"\x00", b"\x0c", b" ", b"(", b")", b"[" * 300, b"{" * 300, b'"', b"\\", b"/", b"../"),
    *(b"null", b"true", b"[]", b"{}", b'""', b"\xef\xbb\xbf", b"\xff\xfe", b"\xed\xa0\x80", b"\xc3", b"\xe2\x80\xa8"),
    *(b"A" * 5000, b"= 1\n", b"a.b.c.d = 1\n", b"-DOCSTART- O\n", b"#begin document (x); part 000\n", b"&lt;", b"<!--"),
)


def mutate(content: bytes, rng: np.random.Generator) -> bytes:
    """Return the bytes with one to four changes."""
    for _ in range(int(rng.integers(1, 5))):
        content = CHANGES[int(rng.integers(len(CHANGES)))](content, rng)
    return content


def mutate_packed(content: bytes, rng: np.random.Generator) -> bytes:
    """Change a compressed file: the file itself, or what it holds."""
    if rng.random() < 0.3:
        return mutate(content, rng)
    inside = lzma.decompress(content)
    return lzma.compress((mutate_tar if inside[257:262] == b"ustar" else mutate)(inside, rng), preset=0)


def mutate_zip(content: bytes, rng: np.random.Generator) -> bytes:
    """Change a zip archive: the file itself, or one member, which is packed again."""
    if rng.random() < 0.3:
        return mutate(content, rng)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    chosen = list(members)[int(rng.integers(len(members)))]
    methods = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", methods[int(rng.integers(3))]) as archive:
        for name, member in members.items():
            archive.writestr(name, mutate(member, rng) if name == chosen else member)
    return buffer.getvalue()


def mutate_tar(content: bytes, rng: np.random.Generator) -> bytes:
    """Change a tar archive: any bytes, or a field of a header, with a right checksum."""
    headers = [place for place in range(0, len(content), 512) if content[place + 257 : place + 262] == b"ustar"]
    if not headers or rng.random() < 0.3:
        return mutate(content, rng)
    place = headers[int(rng.integers(len(headers)))]
    start, stop = TAR_FIELDS[int(rng.integers(len(TAR_FIELDS)))]
    values = (rng.bytes(stop - start), b"\xff" * (stop - start), b"\x80" + rng.bytes(stop - start - 1), *TAR_VALUES)
    value = values[int(rng.integers(len(values)))][: stop - start].ljust(stop - start, b"\0")
    header = bytearray(content[place : place + 512])
    header[start:stop] = value
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return content[:place] + bytes(header) + content[place + 512 :]


def mutate_file(name: str, content: bytes, rng: np.random.Generator) -> bytes:
    """Change a file in the way that its name calls for."""
    for suffix, change in {".xz": mutate_packed, ".zip": mutate_zip, ".npz": mutate_zip, ".tar": mutate_tar}.items():
        if name.endswith(suffix):
            return change(content, rng)
    return mutate(content, rng)


def _place(content: bytes, rng: np.random.Generator) -> int:
    return int(rng.integers(len(content) + 1))


def _span(content: bytes, rng: np.random.Generator) -> slice:
    start = _place(content, rng)
    return slice(start, start + int(rng.geometric(0.02)))


def _flip_bit(content: bytes, rng: np.random.Generator) -> bytes:
    if not content:
        return content
    changed = bytearray(content)
    changed[int(rng.integers(len(changed)))] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def _set_bytes(content: bytes, rng: np.random.Generator) -> bytes:
    span = _span(content, rng)
    fill = (b"\x00", b"\xff", rng.bytes(1))[int(rng.integers(3))]
    return content[: span.start] + fill * len(content[span]) + content[span.stop :]


def _delete(content: bytes, rng: np.random.Generator) -> bytes:
    span = _span(content, rng)
    return content[: span.start] + content[span.stop :]


def _repeat(content: bytes, rng: np.random.Generator) -> bytes:
    span = _span(content, rng)
    return content[: span.stop] + content[span] * int(rng.integers(1, 20)) + content[span.stop :]


def _truncate(content: bytes, rng: np.random.Generator) -> bytes:
    return content[: _place(content, rng)]


def _insert_word(content: bytes, rng: np.random.Generator) -> bytes:
    place = _place(content, rng)
    return content[:place] + WORDS[int(rng.integers(len(WORDS)))] + content[place:]


def _insert_noise(content: bytes, rng: np.random.Generator) -> bytes:
    place = _place(content, rng)
    return content[:place] + rng.bytes(int(rng.integers(1, 40))) + content[place:]


def _change_number(content: bytes, rng: np.random.Generator) -> bytes:
    found = list(NUMBER.finditer(content[:100_000]))
    if not found:
        return content
    match = found[int(rng.integers(len(found)))]
    return content[: match.start()] + NUMBERS[int(rng.integers(len(NUMBERS)))] + content[match.end() :]


def _swap_lines(content: bytes, rng: np.random.Generator) -> bytes:
    lines = content.split(b"\n")
    first, second = (int(rng.integers(len(lines))) for _ in range(2))
    lines[first], lines[second] = lines[second], lines[first]
    return b"\n".join(lines)


CHANGES = (
    *(_flip_bit, _set_bytes, _delete, _repeat, _truncate),
    *(_insert_word, _insert_noise, _change_number, _swap_lines),
)
