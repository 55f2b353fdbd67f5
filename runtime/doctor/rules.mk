# The examination of a device and its driver, for `tally doctor`; nothing without the CUDA headers.
LIBRARIES += tally_doctor
tally_doctor_SRCS := $(if $(CUDA_INCLUDE),$(wildcard runtime/doctor/*.c))
$(call objs,$(tally_doctor_SRCS)): EXTRA_CFLAGS = $(CUDA_FLAGS)
