# The fatbin and ELF reader.  What reads host programs and cubins needs libelf; the rest is libc, lz4 and zstd.
LIBRARIES += tally_image
tally_image_SRCS := $(wildcard image/*.c)
