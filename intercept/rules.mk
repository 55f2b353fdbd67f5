# The fatbin and ELF reader; it needs libelf, lz4 and zstd.
LIBRARIES += tally_image
tally_image_SRCS := $(wildcard intercept/image_*.c)
