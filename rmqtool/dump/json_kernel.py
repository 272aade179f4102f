"""The compiled writer of messages as JSON lines: text from the window's bytes, without a Python object for a value.

What a row holds that is not plain it leaves to the plain writer, as the compiled walk leaves records to the judge.
Call it through `scan.compiled.load_kernel`, which loads kept code of it. All compiled functions stand in this one file,
by whose content kept code is told to be out of date.
"""

# The compiler infers the types of what it compiles; annotations would say less, and not be checked against it.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,misc"
# ruff: noqa: ANN001, ANN201, SIM109
from __future__ import annotations

import numpy
from numpy import int32, int64, uint8, uint32, uint64

from rmqtool.dump.json_kinds import BASE64, BODY_TEXT, CHOICE, HEX, HOST, KEYS, MESSAGE_ID, NUMBER, TEXT
from rmqtool.scan.kernels.jit import BYTES, FLAGS, LONG, LONG_TABLE, LONGS, TEXTS, compiled, equal_ranges, kernel

NAME_END, VALUE_END, SPACE, QUOTE, BACKSLASH, DELETE = (uint8(byte) for byte in b'\x01\x02 "\\\x7f')
STEP = 32
DIGITS = numpy.frombuffer(b"0123456789abcdef", uint8)
UPPER_DIGITS = numpy.frombuffer(b"0123456789ABCDEF", uint8)
BASE64_DIGITS = numpy.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", uint8)
NULL, NO_KEYS, NO_PROPERTIES, COLON, COMMA = (
    numpy.frombuffer(text, uint8) for text in (b"null", b"[]", b"{}", b": ", b", ")
)
SHORT_ESCAPES = numpy.zeros(32, uint8)
SHORT_ESCAPES[[8, 9, 10, 12, 13]] = list(b"btnfr")


@kernel(
    BYTES, LONGS, LONG_TABLE, LONG_TABLE, *[TEXTS, LONGS] * 2, FLAGS, LONGS, FLAGS, LONGS, LONG, BYTES, LONGS, LONGS
)  # fmt: skip
def put_rows(
    source, kinds, first, second, literals, literal_ends, choices, choice_ends, printable, room, left, ends, begin, out,
    names, lengths,
):  # fmt: skip
    """Write rows from number `begin` on until one may not fit; (number of the next row, bytes written).

    Of field `f`, `kinds[f]` says how it is written and `first[f]` and `second[f]` have its numbers by row. Before
    it stands literal `f`, after the last field the last literal. A row of `left` is not written, and a row that cannot
    be written here is marked there. `ends[row]` becomes where the row's text ends in `out`, `room[row]` is the most
    that it takes. `printable` says of each character below its size whether it needs no escape. `names` and `lengths`
    have room for the names of one message, which are compared; one with more is left to the plain writer.
    """
    at = int64(0)
    row = begin
    while row < left.size and (left[row] or at + room[row] <= out.size):
        if not left[row]:
            end = at
            for field in range(kinds.size):
                end = put_literal(out, end, literals, literal_ends, field)
                kind, a, b = kinds[field], first[field, row], second[field, row]
                if kind == NUMBER:
                    end = put_number(out, end, a)
                elif kind == CHOICE:
                    end = put_literal(out, end, choices, choice_ends, a)
                elif kind == HOST:
                    end = put_host(out, end, source, a)
                elif kind == MESSAGE_ID:
                    end = put_message_id(out, end, source, a, b)
                elif b < 0:
                    end = put_bytes(out, end, NULL, 0, NULL.size)
                elif kind == TEXT:
                    end = put_text(out, end, source, a, b, printable, False)
                elif kind == BODY_TEXT:
                    end = put_text(out, end, source, a, b, printable, True)
                elif kind == BASE64:
                    end = put_base64(out, end, source, a, b)
                elif kind == HEX:
                    end = put_hex(out, end, source, a, b)
                elif kind == KEYS:
                    end = put_keys(out, end, source, a, b, printable)
                else:
                    end = put_properties(out, end, source, a, b, printable, names, lengths)
                if end < 0:
                    break
            if end < 0:
                left[row] = True
            else:
                at = put_literal(out, end, literals, literal_ends, kinds.size)
        ends[row] = at
        row += 1
    return row, at


@compiled
def put_bytes(out, at, source, start, length):
    """Copy bytes."""
    for k in range(length):
        out[uint64(at + k)] = source[uint64(start + k)]
    return at + length


@compiled
def put_literal(out, at, texts, ends, number):
    """Copy the text of a number out of many that lie one after the other."""
    start = ends[number - 1] if number > 0 else int64(0)
    return put_bytes(out, at, texts, start, ends[number] - start)


@compiled
def put_number(out, at, value):
    """Write a number in decimal digits."""
    rest = uint64(value)
    if value < 0:
        out[uint64(at)] = uint8(45)
        at += 1
        rest = uint64(0) - rest
    length = int64(1)
    power = uint64(10)
    while length < 19 and rest >= power:
        length += 1
        power *= uint64(10)
    for k in range(length - 1, -1, -1):
        out[uint64(at + k)] = DIGITS[rest % uint64(10)]
        rest //= uint64(10)
    return at + length


@compiled
def put_host(out, at, source, start):
    """Write a host of 8 bytes as an IPv4 address and a port."""
    out[uint64(at)] = QUOTE
    at += 1
    for k in range(4):
        at = put_number(out, at, int64(source[uint64(start + k)]))
        out[uint64(at)] = uint8(58) if k == 3 else uint8(46)
        at += 1
    port = uint32(0)
    for k in range(4, 8):
        port = (port << uint32(8)) | uint32(source[uint64(start + k)])
    at = put_number(out, at, int64(int32(port)))
    out[uint64(at)] = QUOTE
    return at + 1


@compiled
def put_message_id(out, at, source, start, physical_offset):
    """Write the hexadecimal digits of a host of 8 bytes and of an offset."""
    out[uint64(at)] = QUOTE
    at += 1
    for k in range(8):
        byte = source[uint64(start + k)]
        out[uint64(at)] = UPPER_DIGITS[byte >> uint8(4)]
        out[uint64(at + 1)] = UPPER_DIGITS[byte & uint8(15)]
        at += 2
    for shift in range(60, -1, -4):
        out[uint64(at)] = UPPER_DIGITS[(uint64(physical_offset) >> uint64(shift)) & uint64(15)]
        at += 1
    out[uint64(at)] = QUOTE
    return at + 1


@compiled
def put_hex(out, at, source, start, length):
    """Write bytes as hexadecimal digits."""
    out[uint64(at)] = QUOTE
    at += 1
    for k in range(length):
        byte = source[uint64(start + k)]
        out[uint64(at)] = DIGITS[byte >> uint8(4)]
        out[uint64(at + 1)] = DIGITS[byte & uint8(15)]
        at += 2
    out[uint64(at)] = QUOTE
    return at + 1


@compiled
def put_base64(out, at, source, start, length):
    """Write bytes in base 64."""
    out[uint64(at)] = QUOTE
    at += 1
    whole = length // 3 * 3
    for k in range(0, whole, 3):
        p, q = uint64(start + k), uint64(at)
        a, b, c = source[p], source[p + uint64(1)], source[p + uint64(2)]
        out[q] = BASE64_DIGITS[a >> uint8(2)]
        out[q + uint64(1)] = BASE64_DIGITS[((a & uint8(3)) << uint8(4)) | (b >> uint8(4))]
        out[q + uint64(2)] = BASE64_DIGITS[((b & uint8(15)) << uint8(2)) | (c >> uint8(6))]
        out[q + uint64(3)] = BASE64_DIGITS[c & uint8(63)]
        at += 4
    if whole < length:
        a = source[uint64(start + whole)]
        b = source[uint64(start + whole + 1)] if whole + 1 < length else uint8(0)
        q = uint64(at)
        out[q] = BASE64_DIGITS[a >> uint8(2)]
        out[q + uint64(1)] = BASE64_DIGITS[((a & uint8(3)) << uint8(4)) | (b >> uint8(4))]
        out[q + uint64(2)] = BASE64_DIGITS[(b & uint8(15)) << uint8(2)] if whole + 1 < length else uint8(61)
        out[q + uint64(3)] = uint8(61)
        at += 4
    out[uint64(at)] = QUOTE
    return at + 1


@compiled
def put_text(out, at, source, start, length, printable, shows_bytes):
    r"""Write bytes of UTF-8 as a text of JSON.

    Of bytes that are no UTF-8 each becomes `\xNN`, where these are shown; else, and where a character lies after those
    of `printable`, the result is -1.
    """
    out[uint64(at)] = QUOTE
    at += 1
    end = start + length
    while start < end:
        # Most text is plain: many bytes are looked at, and copied, at once.
        while start + STEP <= end:
            special = uint8(0)
            for k in range(STEP):
                byte = source[uint64(start + k)]
                special |= uint8((byte < SPACE) | (byte >= DELETE) | (byte == QUOTE) | (byte == BACKSLASH))
            if special:
                break
            for k in range(STEP):
                out[uint64(at + k)] = source[uint64(start + k)]
            at += STEP
            start += STEP
        stop = min(end, start + STEP)
        while start < stop:
            byte = source[uint64(start)]
            if SPACE <= byte < DELETE:
                if byte == QUOTE or byte == BACKSLASH:  # noqa: PLR1714 - the compiler knows no sets
                    out[uint64(at)] = BACKSLASH
                    at += 1
                out[uint64(at)] = byte
                at, start = at + 1, start + 1
                continue
            if byte < SPACE and SHORT_ESCAPES[byte]:
                out[uint64(at)] = BACKSLASH
                out[uint64(at + 1)] = SHORT_ESCAPES[byte]
                at, start = at + 2, start + 1
                continue
            width, code = int64(1), uint32(byte)
            if byte > DELETE:
                width, code = character_at(source, start, end)
            if width == 0:
                if not shows_bytes:
                    return int64(-1)
                out[uint64(at)] = out[uint64(at + 1)] = BACKSLASH
                out[uint64(at + 2)] = uint8(120)
                out[uint64(at + 3)] = DIGITS[byte >> uint8(4)]
                out[uint64(at + 4)] = DIGITS[byte & uint8(15)]
                at, start = at + 5, start + 1
            elif code >= printable.size:
                return int64(-1)
            elif printable[code]:
                at = put_bytes(out, at, source, start, width)
                start += width
            elif code >> uint32(16):
                return int64(-1)
            else:
                out[uint64(at)] = BACKSLASH
                out[uint64(at + 1)] = uint8(117)
                for k in range(4):
                    out[uint64(at + 2 + k)] = DIGITS[(code >> uint32(12 - 4 * k)) & uint32(15)]
                at, start = at + 6, start + width
    out[uint64(at)] = QUOTE
    return at + 1


@compiled
def character_at(source, start, end):
    """Bytes and number of the character of UTF-8 that begins with a byte that is not ASCII; 0 bytes if none does."""
    byte = source[uint64(start)]
    if byte < 0xC2 or byte > 0xF4:
        return int64(0), uint32(0)
    width = int64(2) + int64(byte >= 0xE0) + int64(byte >= 0xF0)
    if start + width > end:
        return int64(0), uint32(0)
    code = uint32(byte) & (uint32(0x7F) >> uint32(width))
    for k in range(1, width):
        following = source[uint64(start + k)]
        if following & uint8(0xC0) != 0x80:
            return int64(0), uint32(0)
        code = (code << uint32(6)) | uint32(following & uint8(0x3F))
    is_surrogate = 0xD800 <= code <= 0xDFFF
    least = uint32(0x800) if width == 3 else uint32(0x10000) if width == 4 else uint32(0x80)
    if code < least or code > 0x10FFFF or is_surrogate:
        return int64(0), uint32(0)
    return width, code


@compiled
def put_keys(out, at, source, start, length, printable):
    """Write the words of a text, which spaces part, as a list."""
    out[uint64(at)] = uint8(91)
    at += 1
    end, count = start + length, 0
    while start < end:
        stop = start
        while stop < end and source[uint64(stop)] != SPACE:
            stop += 1
        if stop > start:
            if count > 0:
                at = put_bytes(out, at, COMMA, 0, COMMA.size)
            at = put_text(out, at, source, start, stop - start, printable, False)
            if at < 0:
                return at
            count += 1
        start = stop + 1
    out[uint64(at)] = uint8(93)
    return at + 1


@compiled
def put_properties(out, at, source, start, length, printable, names, lengths):
    """Write a property block as an object; -1 too where a name comes again, whose last value counts."""
    out[uint64(at)] = uint8(123)
    at += 1
    end, count = start + length, 0
    while start < end:
        name = start
        while start < end and source[uint64(start)] != NAME_END and source[uint64(start)] != VALUE_END:
            start += 1
        name_length = start - name
        is_named = start < end and source[uint64(start)] == NAME_END
        start += 1
        value = start
        while is_named and start < end and source[uint64(start)] != VALUE_END:
            start += 1
        if not is_named:
            continue
        if name_length > 0 and start > value:
            if count == names.size:
                return int64(-1)
            for k in range(count):
                if lengths[k] == name_length and equal_ranges(source, names[k], name, name_length):
                    return int64(-1)
            names[count], lengths[count] = name, name_length
            if count > 0:
                at = put_bytes(out, at, COMMA, 0, COMMA.size)
            count += 1
            at = put_text(out, at, source, name, name_length, printable, False)
            if at < 0:
                return at
            at = put_bytes(out, at, COLON, 0, COLON.size)
            at = put_text(out, at, source, value, start - value, printable, False)
            if at < 0:
                return at
        start += 1
    out[uint64(at)] = uint8(125)
    return at + 1
