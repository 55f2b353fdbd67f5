"""What the CUDA headers know about the driver's exported functions: for scripts/gen-driver-table and gen-shim-table."""
import os
import re
import shlex
import subprocess
import sys

# From cudaProfiler.h, which not every package of the headers has.
PROFILER = "CUresult cuProfilerStart(void);\nCUresult cuProfilerStop(void);\n"
# From cudaGL.h, which wants OpenGL's own headers; their types are unsigned int.
GRAPHICS = """CUresult cuGraphicsGLRegisterBuffer(CUgraphicsResource *pCudaResource, unsigned int buffer, unsigned int Flags);
CUresult cuGraphicsGLRegisterImage(CUgraphicsResource *pCudaResource, unsigned int image, unsigned int target, unsigned int Flags);
CUresult cuGLGetDevices_v2(unsigned int *pCudaDeviceCount, CUdevice *pCudaDevices, unsigned int cudaDeviceCount, int deviceList);
"""


def preprocessed(include, text, *defines):
    command = [*shlex.split(os.environ.get("CC", "cc")), "-E", "-P", "-xc", "-isystem", include, *defines, "-"]
    out = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    return re.sub(r"\s+", " ", out)


def prototypes(include):
    """name -> list of (declaration, argument name), of every exported function, old versions included."""
    text = preprocessed(include, "#include <cuda.h>\n" + PROFILER + GRAPHICS, "-D__CUDA_API_VERSION_INTERNAL")
    found = {}
    for name, arguments in re.findall(r"CUresult (cu\w+) ?\(([^;{]*)\);", text):
        parsed = []
        for part in [] if arguments.strip() == "void" else split_arguments(arguments):
            part = part.strip()
            inner = re.search(r"\(\s*\*\s*(\w+)\s*\)", part) or re.search(r"(\w+)\s*(\[\d*\])*$", part)
            parsed.append((part, inner.group(1)))
        found[name] = parsed
    return found


def split_arguments(text):
    depth, begin = 0, 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            yield text[begin:i]
            begin = i + 1
    yield text[begin:]


def versions(include):
    """(base name, is per-thread) -> sorted versions, from the typedefs."""
    text = preprocessed(include, "#include <cudaTypedefs.h>\n", "-D__CUDA_API_VERSION_INTERNAL")
    found = {("cuProfilerStart", False): {4000}, ("cuProfilerStop", False): {4000}, ("cuGraphicsGLRegisterBuffer", False): {3000},
             ("cuGraphicsGLRegisterImage", False): {3000}, ("cuGLGetDevices", False): {6050}}
    for name, version, twin in re.findall(r"typedef CUresult ?\( ?\* ?PFN_(cu\w+?)_v(\d+)(_ptsz|_ptds)?\)", text):
        found.setdefault((name, bool(twin)), set()).add(int(version))
    return {key: sorted(value) for key, value in found.items()}


def symbol_order(symbol):
    match = re.search(r"_v(\d+)(_ptsz|_ptds)?$", symbol)
    return int(match.group(1)) if match else 1


def rows(names, typedefs):
    """(base, version, is per-thread, symbol): the n-th version of a name is its n-th symbol."""
    by_base = {}
    for symbol in names:
        twin = re.search(r"_pt[sd][sz]$", symbol)
        base = re.sub(r"(_v\d+)?(_pt[sd][sz])?$", "", symbol)
        by_base.setdefault((base, bool(twin)), []).append(symbol)
    for key, wanted in sorted(typedefs.items()):
        symbols = sorted(by_base.get(key, []), key=symbol_order)
        if len(symbols) != len(wanted):
            # A symbol that the typedefs left out is an old one: the newest ones correspond.
            if len(symbols) < len(wanted):
                print(f"driver_headers: {key}: {wanted} has only {symbols}", file=sys.stderr)
            n = min(len(symbols), len(wanted))
            symbols, wanted = symbols[len(symbols) - n:], wanted[len(wanted) - n:]
        for version, symbol in zip(wanted, symbols):
            yield key[0], version, key[1], symbol
