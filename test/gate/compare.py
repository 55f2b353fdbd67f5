#!/usr/bin/env python3
"""Gated cubins against what ptxas itself makes of prologue and kernel.

usage: compare.py [--arch=80,90] [--ptxas=PATH] [--twins] [--leave-out] [--files=plain,calls] [--attributes]

Each file of test/gate/kernels is compiled as it is; the result is gated by the library, and compared with ptxas's output for the
same source with the gate's source in front of each kernel.  With nvdisasm at hand, instructions are compared as text as well.
--leave-out repeats that with each edit left out in turn, and prints by which architectures it is missed.
Kernels here are our own: nvdisasm is not to be used on others'.
"""
import argparse, collections, os, re, struct, subprocess, sys, tempfile

sys.path.insert(0, os.path.dirname(__file__))
from cubin_elf import Cubin, attributes, offsets_of

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ.get("TALLY_BUILD", "build")
TOOL = os.path.join(BUILD, "test", "gate-tool")
FREE = {0x2F}  # registers: ours are the larger of the two, ptxas's may be more


def run(*command):
    return subprocess.run(command, capture_output=True, text=True)


def tool(name):
    r = run("scripts/tool", name)
    return r.stdout.strip() if r.returncode == 0 else None


def fits(name, arch):
    """Whether a file is for an architecture: by what its name says."""
    number = int(re.match(r"\d+", arch).group())
    if name.endswith("sm_90a") or name.endswith("sm_100a"):
        return arch == re.search(r"sm_(\w+)", name).group(1)
    m = re.search(r"sm_(\d+)", name)
    return number >= (int(m.group(1)) if m else 75)


# --- instructions ----------------------------------------------------------------------------------

def disassemble(nvdisasm, path):
    """{section: {offset: (text, bytes)}}, {label: offset}"""
    r = run(nvdisasm, "-c", "-hex", path)
    if r.returncode or r.stderr.strip():
        raise ValueError("nvdisasm: " + r.stderr.strip()[:200])
    sections, labels, waiting, code, last = {}, {}, [], None, None
    for line in r.stdout.splitlines():
        m = re.match(r"\s*\.section\s+(\S+?),", line)
        if m:
            code = sections.setdefault(m.group(1), {})
        m = re.match(r"^\s*(\S+):\s*$", line)
        if m:
            waiting.append(m.group(1))
        m = re.match(r"\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;?\s*/\* (0x[0-9a-f]{16}) \*/", line)
        if m and code is not None:
            last = int(m.group(1), 16)
            labels.update((w, last) for w in waiting)
            waiting = []
            code[last] = [m.group(2), m.group(3)]
            continue
        m = re.match(r"\s*/\* (0x[0-9a-f]{16}) \*/", line)
        if m and code and last in code:
            code[last].append(m.group(1))
    return sections, labels


def plain_text(text, labels, shift):
    def of_label(m):
        name, plus = m.group(1), 0
        more = re.match(r"^(.*?)\s*\+\s*(0x[0-9a-f]+)$", name)
        if more:
            name, plus = more.group(1), int(more.group(2), 16)
        return "@%x" % (labels[name] + plus - shift) if name in labels else "@" + name

    text = re.sub(r"`\(([^)]*)\)", of_label, text)
    text = re.sub(r"(\.L_x_\d+)", lambda m: "@%x" % (labels[m.group(1)] - shift) if m.group(1) in labels else m.group(1), text)
    return re.sub(r"\s+", " ", text).strip(" ;")


def opcode(text):
    return re.sub(r"^@!?U?P\w+\s+", "", text).split(" ")[0].rstrip(";").split(".")[0]


def branches(value):
    """Where the indirect branches of attribute 34 are."""
    out, at = [], 0
    while at < len(value):
        out.append(struct.unpack_from("<I", value, at)[0])
        at += 12 + 4 * struct.unpack_from("<I", value, at + 8)[0]
    return out


class Text:
    """Disassembled cubins, each once."""

    def __init__(self, nvdisasm):
        self.nvdisasm, self.known = nvdisasm, {}

    def of(self, path):
        if path not in self.known:
            self.known[path] = disassemble(self.nvdisasm, path)
        return self.known[path]


# --- one kernel ------------------------------------------------------------------------------------

def compare_attributes(say, old, new, truth, name, as_name, gate, exit_at, texts):
    """The attributes of kernel `name` before, gated (as `as_name`), and by ptxas."""
    a_old, a_new = old.attributes(".nv.info." + name), new.attributes(".nv.info." + as_name)
    a_truth = truth.attributes(".nv.info." + as_name)
    ids_new, ids_truth = [(i, f) for i, f, _ in a_new], [(i, f) for i, f, _ in a_truth]
    if sorted(ids_new) != sorted(ids_truth):
        say("attributes: ptxas has %s, ours %s" % (["%02x" % i for i, f in ids_truth if (i, f) not in ids_new],
                                                   ["%02x" % i for i, f in ids_new if (i, f) not in ids_truth]))
        return
    if ids_new != ids_truth:
        say("the order of attributes: ptxas %s, ours %s" % (" ".join("%02x" % i for i, _ in ids_truth), " ".join("%02x" % i for i, _ in ids_new)))
    for number in sorted({i for i, _, _ in a_new}):
        v_old, v_new, v_truth = ([v for i, _, v in a if i == number] for a in (a_old, a_new, a_truth))
        listed = offsets_of(number, v_new[0]) if isinstance(v_new[0], bytes) else None
        if number == 0x0A:
            same = v_new[0][4:] == v_truth[0][4:] and new.symbols[struct.unpack("<I", v_new[0][:4])[0]].name == \
                truth.symbols[struct.unpack("<I", v_truth[0][:4])[0]].name
        elif number == 0x0F:
            same = sorted(new.symbols[s].name for s in struct.unpack("<%dI" % (len(v_new[0]) // 4), v_new[0])) == \
                sorted(truth.symbols[s].name for s in struct.unpack("<%dI" % (len(v_truth[0]) // 4), v_truth[0]))
        elif number == 0x29:  # numbers of registers, which ptxas gives out anew
            same = len(v_new[0]) == len(v_truth[0]) and v_new == v_old
        elif listed is None:
            same = v_new == v_truth
        else:
            offsets, rest = listed
            before, rest_before = offsets_of(number, v_old[0]) if v_old else ([], [])
            by_ptxas, _ = offsets_of(number, v_truth[0])
            wanted = [o + gate for o in before]
            if number == 0x1C:
                wanted, rest = [exit_at] + wanted, rest[1:]
            same = offsets == wanted and rest == rest_before and len(offsets) == len(by_ptxas)
            if same and texts is not None:
                ours, theirs = texts
                if number == 0x34:  # where the branches are; what stands first at their targets is scheduled anew
                    offsets, by_ptxas = branches(v_new[0]), branches(v_truth[0])
                same = sorted(opcode(ours.get(o, ["?"])[0]) for o in offsets) == \
                    sorted(opcode(theirs.get(o, ["?"])[0]) for o in by_ptxas)
        if not same:
            say("attribute %02x: ptxas %s, ours %s" % (number, [v.hex() if isinstance(v, bytes) else v for v in v_truth][:2],
                                                       [v.hex() if isinstance(v, bytes) else v for v in v_new][:2]))


def compare_kernel(say, old, new, truth, name, as_name, gate, registers, exit_at, disassembled):
    texts = None
    section = ".text." + as_name
    if disassembled is not None:
        texts = disassembled["new"][0].get(section, {}), disassembled["truth"][0].get(section, {})
    compare_attributes(say, old, new, truth, name, as_name, gate, exit_at, texts)
    t_old, t_new, t_truth = old.by_name[".text." + name], new.by_name[section], truth.by_name[section]
    if t_new.bytes[gate:] != t_old.bytes:
        say("the kernel's own bytes")
    k_new = next(y for y in new.kernels() if y.name == as_name)
    k_truth = next(y for y in truth.kernels() if y.name == as_name)
    if (k_new.value, k_new.size == t_new.size) != (k_truth.value, k_truth.size == t_truth.size):
        say("the kernel's symbol: %d of %d bytes" % (k_new.size, t_new.size))
    for part in (".nv.constant0.", ".nv.shared.", ".nv.constant2."):
        a, b, c = new.by_name.get(part + as_name), truth.by_name.get(part + as_name), old.by_name.get(part + name)
        if (a and a.size) != (b and b.size):
            say("%s: ptxas %s bytes, ours %s" % (part, b and b.size, a and a.size))
        if part == ".nv.constant2." and a and a.bytes != c.bytes:
            say("constants")
    has, wants = new.registers(as_name), max(old.registers(name)[0], registers)
    if has != [wants]:
        say("registers: %s, not %d" % (has, wants))
    if truth.registers(as_name) and has and not has[0] - 8 <= truth.registers(as_name)[0] <= has[0] + 24:
        say("registers: ptxas %s, ours %s" % (truth.registers(as_name), has))
    if t_truth.info >> 24 == truth.registers(as_name)[0] and has and t_new.info >> 24 != has[0]:
        say("registers of the section: %d" % (t_new.info >> 24))
    compare_inside(say, old, new, name, as_name, gate)
    if disassembled is not None:
        compare_text(say, disassembled, name, as_name, gate)


def compare_inside(say, old, new, name, as_name, gate):
    """Functions in the kernel's section."""
    def inside(c, k):
        n = c.by_name[".text." + k].number
        return sorted((y.value, y.size) for y in c.symbols if y.section == n and y.info & 15 == 2 and not y.other & 0x10)

    if [(v + gate, s) for v, s in inside(old, name)] != inside(new, as_name):
        say("functions inside: %s became %s" % (inside(old, name), inside(new, as_name)))


def compare_text(say, disassembled, name, as_name, gate):
    (s_old, l_old), (s_new, l_new) = disassembled["old"], disassembled["new"]
    before = s_old.get(".text." + name, {})
    behind = {o: t for o, t in s_new.get(".text." + as_name, {}).items() if o >= gate}
    if len(before) != len(behind):
        say("%d instructions became %d" % (len(before), len(behind)))
    for o, t in before.items():
        n = behind.get(o + gate)
        if n is None or plain_text(t[0], l_old, 0) != plain_text(n[0], l_new, gate):
            say("instruction at %x: %s became %s" % (o, plain_text(t[0], l_old, 0), n and plain_text(n[0], l_new, gate)))
            return


# --- one cubin -------------------------------------------------------------------------------------

def compare_module(say, new, truth, is_twin):
    def names(c, skip):
        return sorted((s.name, s.type, s.flags, s.align) for s in c.kept() if not (skip and s.name.startswith(".rel")))

    a, b = names(new, is_twin), names(truth, is_twin)
    if any(s.name.startswith((".nv.merc", ".nv.capmerc")) for s in new.sections):
        say("sections of another form of the code, which is not gated")
    if a != b:
        say("sections: only ptxas %s, only ours %s" % ([x for x in b if x not in a][:3], [x for x in a if x not in b][:3]))

    def info(c):
        out = []
        for i, _, v in c.attributes(".nv.info"):
            symbol = c.symbols[struct.unpack("<I", v[:4])[0]].name if isinstance(v, bytes) else ""
            out.append((i, "" if "$" in symbol[:1] else symbol, b"" if i in FREE or not isinstance(v, bytes) else v[4:]))
        return sorted(out)

    a, b = info(new), info(truth)
    if a != b:
        say(".nv.info: only ptxas %s, only ours %s" % ([x for x in b if x not in a][:3], [x for x in a if x not in b][:3]))

    def relocations(c):
        return sorted((s.name, kind, symbol.name) for s in c.kept() if s.type in (4, 9) and not (is_twin and "debug" in s.name)
                      for _, kind, symbol, _ in c.relocations(s))

    a, b = relocations(new), relocations(truth)
    if a != b:
        say("relocations: only ptxas %s, only ours %s" % ([x for x in b if x not in a][:3], [x for x in a if x not in b][:3]))
    if not is_twin and new.loaded() != truth.loaded():
        say("segments: ptxas %s, ours %s" % (truth.loaded(), new.loaded()))
    if is_twin and not all(row[3] for row in new.loaded()):
        say("segments: %s" % new.loaded())
    if is_twin and [(row[1], row[2]) for row in new.loaded()] != [(row[1], row[2]) for row in truth.loaded()]:
        say("segments: ptxas %s, ours %s" % (truth.loaded(), new.loaded()))

    def calls(c):
        def called(n):
            return re.sub(r"^\$.*\$", "$", c.symbols[n].name) if n < len(c.symbols) else n

        s = c.by_name.get(".nv.callgraph")
        return sorted(map(str, ((called(x), called(y)) for x, y in struct.iter_unpack("<II", s.bytes)))) if s else []

    if calls(new) != calls(truth):
        say("the graph of calls: ptxas %s, ours %s" % (calls(truth)[:6], calls(new)[:6]))
    if is_twin:
        return

    def frames(c):
        """Each entry against the symbol that it is about."""
        out = []
        for (symbol, addend), n in c.frames().items():
            k = next(y for y in c.symbols if y.name == symbol)
            if addend == 0:
                out.append((symbol, "kernel", n <= k.size and n > 0, [n == k.size]))
            else:
                out.append((symbol, "inside", any(y.value == addend and y.section == k.section and y.size >= n for y in c.symbols), []))
        return out

    a, b = frames(new), frames(truth)
    if sorted(x[:3] for x in a) != sorted(x[:3] for x in b):
        say("unwind tables: ptxas %s, ours %s" % (sorted(b)[:3], sorted(a)[:3]))


class Case:
    """One file for one architecture, compiled once."""

    def __init__(self, options, folder, file, arch):
        self.options, self.arch = options, arch
        self.name = os.path.splitext(os.path.basename(file))[0]
        self.base = os.path.join(folder, "%s.sm_%s" % (self.name, arch))
        self.text = Text(options.nvdisasm) if options.nvdisasm else None
        self.problem = None
        ptx = file
        if file.endswith(".cu"):
            ptx = self.base + ".ptx"
            least = re.search(r"sm_(\d+a?)", self.name)
            ptx = os.path.join(folder, self.name + ".ptx")
            if not os.path.exists(ptx):
                r = run(options.nvcc, "-arch=compute_" + (least.group(1) if least else "75"), "-ptx", "-w", "-o", ptx, file)
                if r.returncode:
                    raise SystemExit("nvcc does not compile %s: %s" % (file, r.stderr[:400]))
        self.ptx = ptx
        r = run(options.ptxas, "-arch=sm_" + arch, ptx, "-o", self.base + ".cubin")
        if r.returncode:
            self.problem = "ptxas: " + r.stderr[:200]
            return
        self.old = Cubin(open(self.base + ".cubin", "rb").read())
        self.truths = {}

    def truth(self, is_twin):
        if is_twin not in self.truths:
            kind = "twin" if is_twin else "gate"
            source, to = "%s.%s.ptx" % (self.base, kind), "%s.%s.truth" % (self.base, kind)
            r = run(TOOL, "prologue", self.ptx, self.base + ".cubin", source, *(["twin"] if is_twin else []))
            if r.returncode == 0:
                r = run(self.options.ptxas, "-arch=sm_" + self.arch, source, "-o", to)
            self.truths[is_twin] = to if r.returncode == 0 else "!" + r.stderr[:300]
        return self.truths[is_twin]

    def check(self, is_twin, left_out=None):
        """What differs, how many kernels were compared, which were refused."""
        said = []
        to = "%s.%s.cubin" % (self.base, "twin" if is_twin else "gated" if left_out is None else "without")
        r = run(TOOL, "gate", self.options.ptxas, self.base + ".cubin", to, *(["leave-out=%d" % left_out] if left_out is not None else []),
                *(["twin"] if is_twin else []))
        if r.returncode:
            return ["the library: " + r.stderr.strip()], 0, []
        truth = self.truth(is_twin)
        if truth.startswith("!"):
            return ["ptxas, with the prologue: " + truth[1:]], 0, []
        new, true = Cubin(open(to, "rb").read()), Cubin(open(truth, "rb").read())
        disassembled = None
        if self.text is not None and left_out is None:
            try:
                disassembled = {"old": self.text.of(self.base + ".cubin"), "new": self.text.of(to), "truth": self.text.of(truth)}
            except ValueError as e:
                said.append(str(e))
            for key, c in (("old", self.old), ("new", new)):
                if disassembled:
                    for y in c.symbols:
                        if y.info & 15 == 2 and y.section:
                            disassembled[key][1].setdefault(y.name, y.value)
        compare_module(said.append, new, true, is_twin)
        kernels = 0
        refused = []
        for line in r.stdout.splitlines():
            word = line.split(" ")
            if word[0] == "refused":
                refused.append((word[1], word[2]))
                continue
            kernels += 1
            as_name = word[1] + ("$gate" if is_twin else "")
            compare_kernel(lambda what, k=as_name: said.append("%s: %s" % (k, what)), self.old, new, true, word[1], as_name,
                           int(word[2]), int(word[3]), int(word[4]), disassembled)
            if is_twin and new.by_name[".text." + word[1]].bytes != self.old.by_name[".text." + word[1]].bytes:
                said.append(word[1] + ": the original is not as it was")
        return said, kernels, refused


def leave_out_each(options, cases):
    """A row per edit: on which architectures the comparison misses it."""
    missed_nowhere = 0
    edits = [line.split(" ", 1) for line in run(TOOL, "edits").stdout.splitlines()]
    print("\nEach edit left out in turn: cubins in which the comparison finds it missing")
    archs = sorted({c.arch for c in cases}, key=lambda a: (int(re.match(r"\d+", a).group()), a))
    print("%-36s %s" % ("", " ".join("%6s" % a for a in archs)))
    sound = {(c, t): set(c.check(t)[0]) for c in cases for t in (False, True)}
    for number, text in edits:
        found = collections.Counter()
        is_twin = text.startswith("twin")
        for c in cases:
            said = set(c.check(is_twin, int(number))[0])
            found[c.arch] += bool(said - sound[(c, is_twin)])
        missed_nowhere += not sum(found.values())
        print("%-36s %s" % (text, " ".join("%6s" % (found[a] or "-") for a in archs)), flush=True)
    return missed_nowhere


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--arch", default="75,80,86,89,90,90a,100,100a,120")
    p.add_argument("--ptxas", default=tool("ptxas"))
    p.add_argument("--nvcc", default=tool("nvcc"))
    p.add_argument("--nvdisasm", default=tool("nvdisasm"))
    p.add_argument("--files", default="")
    p.add_argument("--twins", action="store_true")
    p.add_argument("--leave-out", action="store_true")
    p.add_argument("--attributes", action="store_true", help="print which attributes the kernels have")
    p.add_argument("--quiet", action="store_true")
    options = p.parse_args()
    folder = tempfile.mkdtemp(prefix="gate-")
    os.environ.setdefault("TALLY_CACHE", os.path.join(folder, "cache"))
    wanted = options.files.split(",") if options.files else None
    files = sorted(f for f in os.listdir(HERE + "/kernels") if f.endswith((".ptx", ".cu")) and (not wanted or os.path.splitext(f)[0] in wanted))
    total = collections.Counter()
    seen, refused, cases = collections.defaultdict(set), set(), []
    for arch in options.arch.split(","):
        for file in files:
            name = os.path.splitext(file)[0]
            if not fits(name, arch):
                continue
            case = Case(options, folder, os.path.join(HERE, "kernels", file), arch)
            if case.problem:
                print("skip %s sm_%s: %s" % (name, arch, case.problem))
                total["skipped"] += 1
                continue
            for k in case.old.kernels():
                for i, f, _ in case.old.attributes(".nv.info." + k.name):
                    seen[i].add(arch)
            if "launch_control" in name:
                r = run(TOOL, "gate", options.ptxas, case.base + ".cubin", case.base + ".none")
                good = r.returncode != 0 and "cluster launch control" in r.stderr
                total["cubins"] += 1
                total["wrong"] += not good
                print("%s %s sm_%s: refused" % ("ok  " if good else "FAIL", name, arch))
                continue
            cases.append(case)
            for is_twin in (False, True) if options.twins else (False,):
                said, kernels, no = case.check(is_twin)
                refused.update(no)
                total["cubins"] += 1
                total["kernels"] += kernels
                total["wrong"] += bool(said)
                if said or not options.quiet:
                    print("%s %s sm_%s%s: %d kernels%s" % ("FAIL" if said else "ok  ", name, arch, " twins" if is_twin else "", kernels,
                                                           "" if not said else "\n     " + "\n     ".join(s[:300] for s in said[:6])), flush=True)
    missing = leave_out_each(options, cases) if options.leave_out else 0
    if options.attributes:
        known = {int(line.split()[0], 16): line.split()[1] for line in run(TOOL, "attributes").stdout.splitlines()}
        for i, name in known.items():
            print("%02x %-28s %s" % (i, name, " ".join(sorted(seen.get(i, []))) or "NOT MADE BY ANY KERNEL HERE"))
        for i in sorted(set(seen) - set(known)):
            print("%02x is made, and not known" % i)
    print("refused: " + ", ".join("%s (%s)" % r for r in sorted(refused)))
    version = run(options.ptxas, "--version").stdout.strip().splitlines()[-1]
    print("%d cubins, %d kernels by %s%s: %d differ%s" % (total["cubins"], total["kernels"], version,
          "" if options.nvdisasm else ", without nvdisasm", total["wrong"],
          ", %d edits are missed nowhere" % missing if options.leave_out else ""))
    subprocess.run(["rm", "-rf", folder])
    return 1 if total["wrong"] or missing else 0


if __name__ == "__main__":
    sys.exit(main())
