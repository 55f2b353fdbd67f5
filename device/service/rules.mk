# Between the driver and its compiler: what they say to each other, and the driver's side of it.  libc only.
LIBRARIES += tally_service
tally_service_SRCS := $(wildcard device/service/*.c)
