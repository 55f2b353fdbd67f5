# `make bench-device`: the software device against PoCL and native code, see scripts/bench-device.
BENCH_DIR := $(B)/bench
BENCH_SIDES := $(addprefix $(BENCH_DIR)/,device-cuda device-opencl device-native)
BENCH_CFLAGS = $(COMPILE) -O3 -march=native
# The limit should be a limit: clang makes the better vector code, and products and sums may be fused as CUDA's are.
BENCH_NATIVE_CC := $(if $(shell command -v clang),clang,$(CC))

$(BENCH_DIR)/device_side.o: test/bench/device_side.c test/bench/device_side.h
	@mkdir -p $(@D)
	$(Q)$(BENCH_CFLAGS) -c -o $@ $<
$(BENCH_DIR)/device-cuda: test/bench/device_cuda.cu test/bench/device_loops.inc test/bench/device_side.h $(BENCH_DIR)/device_side.o
	$(say) NVCC $<
	$(Q)$(NVCC) -O3 -std=c++17 -gencode arch=compute_90,code=compute_90 -I. -o $@ $< $(BENCH_DIR)/device_side.o
$(BENCH_DIR)/device_cuda.ptx: test/bench/device_cuda.cu test/bench/device_loops.inc test/bench/device_side.h
	@mkdir -p $(@D)
	$(Q)$(NVCC) -O3 -std=c++17 -arch=compute_90 -ptx -I. -o $@ $<
$(BENCH_DIR)/device-opencl: test/bench/device_opencl.c test/bench/device_side.h $(BENCH_DIR)/device_side.o
	$(say) CC $<
	$(Q)$(BENCH_CFLAGS) -o $@ $< $(BENCH_DIR)/device_side.o -lOpenCL -lm
$(BENCH_DIR)/device-native: CC = $(BENCH_NATIVE_CC)
$(BENCH_DIR)/device-native: test/bench/device_native.c test/bench/device_side.h $(BENCH_DIR)/device_side.o
	$(say) CC $<
	$(Q)$(BENCH_CFLAGS) -ffp-contract=fast -fopenmp -Wno-pass-failed -o $@ $< $(BENCH_DIR)/device_side.o -lm

# Kernels as programs have them, for what compiling costs.
BENCH_PROGRAMS := $(patsubst workloads/cuda/%.cu,$(BENCH_DIR)/programs/%.ptx,$(wildcard workloads/cuda/*.cu))
$(BENCH_DIR)/programs/%.ptx: workloads/cuda/%.cu
	@mkdir -p $(@D)
	$(say) NVCC $<
	$(Q)$(NVCC) -O3 -std=c++17 -arch=compute_90 -ptx -I. -o $@ $<

bench-device: all $(BENCH_SIDES) $(BENCH_DIR)/device_cuda.ptx $(BENCH_PROGRAMS)
	@scripts/bench-device $(BENCH_ARGS)
.PHONY: bench-device
