# Sample programs that know nothing of Tally: `make workloads` builds each workloads/cuda/NAME.cu with nvcc, PTX only, into
# $(B)/workloads/cuda/NAME with the CUDA runtime linked in and NAME-shared with libcudart.so; workloads/cuda/lib/*.cu are
# those that need NVIDIA's libraries.  workloads/jobs has an inference server and trainers; train-opaque is the
# trainer as machine code only, for which no PTX exists.  Without nvcc nothing is built, and the tests that need them are skipped.
ifneq ($(NVCC),)
# A toolkit may come without some of its libraries.
workload_has = $(wildcard $(patsubst %/bin/,%,$(dir $(realpath $(NVCC))))/lib*/lib$(1).so)
WORKLOAD_NAMES := $(filter-out $(if $(call workload_has,nvrtc),,nvrtc),$(basename $(notdir $(wildcard workloads/cuda/*.cu))))
# PROGRAM:LIBRARY, for workloads/cuda/lib.
WORKLOAD_LIB_PAIRS := $(foreach p,blas:cublas rand:curand fft:cufft sparse:cusparse solver:cusolver blaslt:cublasLt dnn:cudnn,$(if $(call workload_has,$(lastword $(subst :, ,$(p)))),$(p)))
WORKLOAD_LIB_NAMES := $(foreach p,$(WORKLOAD_LIB_PAIRS),$(firstword $(subst :, ,$(p))))
JOBS := $(addprefix $(B)/workloads/jobs/,serve train train-opaque large)
WORKLOADS := $(JOBS) $(foreach n,$(WORKLOAD_NAMES),$(B)/workloads/cuda/$(n) $(B)/workloads/cuda/$(n)-shared) \
    $(addprefix $(B)/workloads/cuda/lib/,$(WORKLOAD_LIB_NAMES))
endif

workloads: $(WORKLOADS)
# A device with a sanitizer cannot be loaded by programs without one, so there they are not needed.
ifeq ($(FLAVOUR),)
tests: workloads
endif
# The inference server and the trainers alone: what the demo and the benchmarks run.
jobs: $(JOBS)
.PHONY: workloads jobs

$(B)/workloads/cuda/%.o: workloads/cuda/%.cu workloads/cuda/check.h
	$(say) NVCC $<
	@mkdir -p $(@D)
	$(Q)$(NVCC) -O2 -std=c++17 -gencode arch=compute_90,code=compute_90 $(WORKLOAD_FLAGS) -Iworkloads/cuda -c -o $@ $<
$(WORKLOAD_LIB_NAMES:%=$(B)/workloads/cuda/lib/%.o): workloads/cuda/lib/library.h
$(B)/workloads/cuda/%-shared: $(B)/workloads/cuda/%.o
	$(Q)$(NVCC) -cudart shared -o $@ $< $(WORKLOAD_LIBS)
$(B)/workloads/cuda/lib/%: $(B)/workloads/cuda/lib/%.o
	$(Q)$(NVCC) -cudart shared -o $@ $< $(patsubst $*:%,-l%,$(filter $*:%,$(WORKLOAD_LIB_PAIRS)))
$(B)/workloads/cuda/%: $(B)/workloads/cuda/%.o
	$(Q)$(NVCC) -o $@ $< $(WORKLOAD_LIBS)

# A program of several files, compiled separately: what of them has PTX are the objects, not what is linked of them.
SEPARATE := $(patsubst workloads/%.cu,$(B)/workloads/%.o,$(wildcard workloads/cuda/parts/*.cu))
$(SEPARATE) $(B)/workloads/cuda/separate.o: WORKLOAD_FLAGS := -rdc=true
$(SEPARATE) $(B)/workloads/cuda/separate.o: workloads/cuda/parts/parts.h
$(B)/workloads/cuda/separate $(B)/workloads/cuda/separate-shared: WORKLOAD_LIBS = -gencode arch=compute_90,code=compute_90 $(SEPARATE)
$(B)/workloads/cuda/separate $(B)/workloads/cuda/separate-shared: $(SEPARATE)
# Kernels that launch kernels want the same.
$(B)/workloads/cuda/nested.o: WORKLOAD_FLAGS := -rdc=true
$(B)/workloads/cuda/nested $(B)/workloads/cuda/nested-shared: WORKLOAD_LIBS = -gencode arch=compute_90,code=compute_90

JOB_HDRS := $(wildcard workloads/jobs/*.h workloads/jobs/*.cuh)
define make_job
	$(say) NVCC $@
	@mkdir -p $(@D)
	$(Q)$(NVCC) -O2 -std=c++17 -gencode arch=compute_90,code=$(1) -o $@ $<
endef
$(B)/workloads/jobs/%-opaque: workloads/jobs/%.cu $(JOB_HDRS)
	$(call make_job,sm_90)
$(B)/workloads/jobs/%: workloads/jobs/%.cu $(JOB_HDRS)
	$(call make_job,compute_90)

# Its check is exact, so products and sums must not be fused.
$(B)/workloads/cuda/mandelbrot.o: WORKLOAD_FLAGS := -fmad=false
# Linked with the software device: not every toolkit has a libcuda.so to link with.
$(B)/workloads/cuda/nvrtc $(B)/workloads/cuda/nvrtc-shared: WORKLOAD_LIBS = -L$(B)/lib/tally/device -lnvrtc -lcuda
$(B)/workloads/cuda/nvrtc $(B)/workloads/cuda/nvrtc-shared: | $(B)/lib/tally/device/libcuda.so

# Programs whose result depends on the order of what they ask for; for every profile of the device.
ORDER_PROGRAMS := $(if $(NVCC),$(patsubst workloads/order/%.cu,$(B)/workloads/order/%,$(wildcard workloads/order/*.cu)))
workloads: $(ORDER_PROGRAMS)
$(B)/workloads/order/%: workloads/order/%.cu workloads/order/order.h workloads/rules.mk
	$(say) NVCC $<
	@mkdir -p $(@D)
	$(Q)$(NVCC) -O2 -std=c++17 -gencode arch=compute_80,code=compute_80 -Wno-deprecated-declarations $(ORDER_FLAGS) \
	    -o $@ $< $(ORDER_LIBS)
$(B)/workloads/order/per_thread: ORDER_FLAGS := --default-stream per-thread
$(B)/workloads/order/memory_words: ORDER_LIBS = -L$(B)/lib/tally/device -lcuda
$(B)/workloads/order/memory_words: | $(B)/lib/tally/device/libcuda.so

# The same programs as machine code only, for the gate: code/NAME has no PTX, and code/NAME.known beside it has both, from which the
# software device learns what it is to run (gate-tool learn).  A few for `make test`, all for `make test-force`.
CODE_FEW := vector_add reduce_shared scan_lookback graph_capture streams constant device_functions odd_blocks split_k turns
code_of = $(if $(NVCC),$(foreach n,$(1),$(B)/workloads/code/$(n) $(B)/workloads/code/$(n).known))
workloads: $(call code_of,$(CODE_FEW) $(notdir $(ORDER_PROGRAMS)) train)
code-workloads: $(call code_of,$(filter-out nvrtc separate nested,$(WORKLOAD_NAMES)) $(notdir $(ORDER_PROGRAMS)) train)
.PHONY: code-workloads

# For both architectures whose profiles the tests have, but for programs that need the newer one.
CODE_SM_90 := async_copy tensor_copy
CODE_ARCHS := 80 90
$(call code_of,$(CODE_SM_90)): CODE_ARCHS := 90
CODE_ONLY = $(foreach a,$(CODE_ARCHS),-gencode arch=compute_$(a),code=sm_$(a))
CODE_AND_PTX = $(foreach a,$(CODE_ARCHS),-gencode arch=compute_$(a),code=[sm_$(a),compute_$(a)])
define make_code
	$(say) NVCC $@
	@mkdir -p $(@D)
	$(Q)$(NVCC) -O2 -std=c++17 -Wno-deprecated-declarations $(1) $(WORKLOAD_FLAGS) $(ORDER_FLAGS) -Iworkloads/cuda \
	    -o $@ $< $(ORDER_LIBS)
endef
CODE_HDRS := workloads/cuda/check.h workloads/order/order.h $(JOB_HDRS) workloads/rules.mk
$(foreach d,cuda order jobs,$(eval $(B)/workloads/code/%.known: workloads/$(d)/%.cu $(CODE_HDRS); $$(call make_code,$$(CODE_AND_PTX))))
$(foreach d,cuda order jobs,$(eval $(B)/workloads/code/%: workloads/$(d)/%.cu $(CODE_HDRS); $$(call make_code,$$(CODE_ONLY))))
$(B)/workloads/code/mandelbrot $(B)/workloads/code/mandelbrot.known: WORKLOAD_FLAGS := -fmad=false
$(call code_of,per_thread): ORDER_FLAGS := --default-stream per-thread
$(call code_of,memory_words): ORDER_LIBS = -L$(B)/lib/tally/device -lcuda
$(call code_of,memory_words): | $(B)/lib/tally/device/libcuda.so
