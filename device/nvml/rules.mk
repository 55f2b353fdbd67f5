# libnvidia-ml.so.1 of the software device.
SHARED += device/libnvidia-ml.so.1
device/libnvidia-ml.so.1_SRCS := $(wildcard device/nvml/*.c)
device/libnvidia-ml.so.1_SYSTEM := -ldl
