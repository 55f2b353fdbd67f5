# The fatbin and ELF reader; it needs libelf, lz4 and zstd.
LIBRARIES += tally_image
tally_image_SRCS := $(wildcard intercept/image_*.c)

# The interception library: libcuda.so.1, which links libc only.
include intercept/shim.mk
