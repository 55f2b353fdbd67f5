"""Tells Tally where a program's requests begin and end.  Without Tally all of it does nothing.

    import tally_mark

    with tally_mark.request():
        serve(client)

    for batch in batches:
        train(batch)
        tally_mark.iteration()
"""
import contextlib
import ctypes


def _function(name, result, *arguments):
    try:
        function = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError):
        return None
    function.restype = result
    function.argtypes = arguments
    return function


_begin = _function("tally_request_begin", ctypes.c_uint64)
_end = _function("tally_request_end", None, ctypes.c_uint64)
_iteration = _function("tally_iteration", None)


def begin():
    """A request begins; what it returns goes to end(), from any thread."""
    return _begin() if _begin is not None else 0


def end(request):
    """That request is answered."""
    if _end is not None:
        _end(request)


@contextlib.contextmanager
def request():
    """A request, as a block."""
    mark = begin()
    try:
        yield
    finally:
        end(mark)


def iteration():
    """A step of training has ended."""
    if _iteration is not None:
        _iteration()
