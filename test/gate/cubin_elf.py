"""Cubins for the tests of the gate: a reader of its own, which shares nothing with the one under test."""
import struct

SKIPPED = (".nv.merc", ".nv.capmerc")
OFFSET_LISTS = {0x1C: 4, 0x28: 4, 0x31: 4, 0x46: 4, 0x39: 16, 0x44: 8, 0x2E: 8}  # id: bytes per record, the offset first


class Record:
    def __init__(self, **fields):
        self.__dict__.update(fields)


class Cubin:
    def __init__(self, data):
        self.data = data
        head = struct.unpack_from("<HHIQQQIHHHHHH", data, 16)
        self.phoff, self.shoff, phnum, shnum, names = head[4], head[5], head[9], head[11], head[12]
        self.sections = []
        for i in range(shnum):
            f = struct.unpack_from("<IIQQQQIIQQ", data, self.shoff + 64 * i)
            s = Record(at=f[0], type=f[1], flags=f[2], offset=f[4], size=f[5], link=f[6], info=f[7], align=f[8], number=i)
            s.bytes = b"" if s.type == 8 or (s.type >= 0x70000007 and s.type in (0x70000007, 0x70000009, 0x7000000A, 0x70000015)) else data[s.offset : s.offset + s.size]
            self.sections.append(s)
        text = self.sections[names].bytes
        for s in self.sections:
            s.name = text[s.at : text.index(0, s.at)].decode()
        self.by_name = {s.name: s for s in self.sections}
        table = self.by_name[".symtab"]
        text = self.sections[table.link].bytes
        self.symbols = []
        for i in range(table.size // 24):
            name, info, other, section, value, size = struct.unpack_from("<IBBHQQ", table.bytes, 24 * i)
            self.symbols.append(Record(name=text[name : text.index(0, name)].decode(), info=info, other=other,
                                       section=section, value=value, size=size, number=i))
        self.segments = [Record(**dict(zip(("type", "flags", "offset", "vaddr", "paddr", "filesz", "memsz", "align"),
                                           struct.unpack_from("<IIQQQQQQ", data, self.phoff + 56 * i)))) for i in range(phnum)]

    def kept(self):
        return [s for s in self.sections if not s.name.startswith(SKIPPED)]

    def kernels(self):
        return [y for y in self.symbols if y.info & 15 == 2 and y.other & 0x10 and y.section]

    def attributes(self, name):
        return attributes(self.by_name[name].bytes)

    def registers(self, kernel):
        number = next(y.number for y in self.kernels() if y.name == kernel)
        return [v for s, v in (struct.unpack("<II", v) for i, _, v in self.attributes(".nv.info") if i == 0x2F) if s == number]

    def relocations(self, section):
        each = 24 if section.type == 4 else 16
        for at in range(0, len(section.bytes), each):
            place, info = struct.unpack_from("<QQ", section.bytes, at)
            addend = struct.unpack_from("<Q", section.bytes, at + 16)[0] if each == 24 else None
            yield place, info & 0xFFFFFFFF, self.symbols[info >> 32], addend

    def frames(self):
        """{(symbol, addend): length} of the unwind table's entries."""
        table = self.by_name.get(".debug_frame")
        relocations = self.by_name.get(".rela.debug_frame") or self.by_name.get(".rel.debug_frame")
        if table is None or relocations is None:
            return {}
        places, at = set(), 0
        while at + 4 <= table.size:
            (n,) = struct.unpack_from("<I", table.bytes, at)
            head, width = (12, 8) if n == 0xFFFFFFFF else (4, 4)
            if n == 0xFFFFFFFF:
                (n,) = struct.unpack_from("<Q", table.bytes, at + 4)
            if table.bytes[at + head : at + head + width] != b"\xff" * width:
                places.add(at + head + width)
            at += head + n
        out = {}
        for place, _, symbol, addend in self.relocations(relocations):
            if place in places:
                where, n = struct.unpack_from("<QQ", table.bytes, place)
                out[(symbol.name, where if addend is None else addend)] = n
        return out

    def loaded(self):
        """What each segment covers: by names, and whether its sizes are those of what it covers."""
        out = []
        for p in self.segments:
            if p.type != 1 or p.offset == self.phoff:
                out.append((p.type, p.flags, p.offset == self.phoff, p.filesz == 56 * len(self.segments)))
                continue
            inside = [s for s in self.kept() if s.flags & 2 and bool(s.flags & 1) == bool(p.flags & 2) and s.bytes
                      and p.offset <= s.offset and s.offset + s.size <= p.offset + p.filesz]
            empty = [s for s in self.kept() if s.flags & 3 == 3 and s.type == 8] if p.flags & 2 else []
            fits = not inside or (inside[0].offset == p.offset and p.offset + p.filesz - inside[-1].offset - inside[-1].size < 16)
            out.append((p.type, p.flags, sorted(s.name for s in inside), fits,
                        p.memsz - p.filesz >= sum(s.size for s in empty) or len([q for q in self.segments if q.flags & 2]) > 1))
        return out


def attributes(b):
    out, at = [], 0
    while at + 4 <= len(b):
        form, number, n = struct.unpack_from("<BBH", b, at)
        if form == 4:
            out.append((number, form, bytes(b[at + 4 : at + 4 + n])))
            at += 4 + n
        else:
            out.append((number, form, n))
            at += 4
    return out


def offsets_of(number, value):
    """The offsets into the code that an attribute holds, in order, and the rest of it."""
    if number in OFFSET_LISTS:
        step = OFFSET_LISTS[number]
        rows = [value[i : i + step] for i in range(0, len(value), step)]
        return [struct.unpack("<I", r[:4])[0] for r in rows], [r[4:] for r in rows]
    if number == 0x55:
        rows = [value[i : i + 8] for i in range(0, len(value), 8)]
        return [struct.unpack("<I", r[4:])[0] for r in rows], [r[:4] for r in rows]
    if number == 0x34:
        offsets, rest, at = [], [], 0
        while at < len(value):
            where, other, n = struct.unpack_from("<III", value, at)
            offsets += [where, *struct.unpack_from("<%dI" % n, value, at + 12)]
            rest.append((other, n))
            at += 12 + 4 * n
        return offsets, rest
    return None
