# Tally: one Makefile for everything.  `make help` lists the targets.
#
# Each room, a folder of sources, has a rules.mk that fills lists; the rules for them are here.
#
#   LIBRARIES  NAME: NAME_SRCS become $(B)/lib/libNAME.a
#   PROGRAMS   NAME: NAME_SRCS are linked with the libraries NAME_LIBS into $(B)/bin/NAME
#   SHARED     NAME: NAME_SRCS and NAME_OBJS, with what they need of the libraries NAME_LIBS, become $(B)/lib/tally/NAME
#
# Sources are found by wildcard, so a new file needs no edit.  Everything is compiled once, as position-independent code.

ifneq ($(word 2,$(CURDIR)),)
$(error '$(CURDIR)' has a blank in it, and neither make nor LD_PRELOAD can cope with that; move the folder)
endif

B ?= build
# What scripts/setup brings (Unity, CUDA tools) is kept once and shared by the sanitizer and fuzzing builds.
DEPS := build
UNITY_DIR ?= $(DEPS)/unity
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 60
FUZZ_JOBS ?= 2
CLANG ?= clang
CLANG_FORMAT ?= clang-format
CLANG_TIDY ?= clang-tidy
SETUP ?= yes

all: # the default; its prerequisites are below

# As many steps at once as there are processors, unless the user says how many.
ifeq ($(MAKELEVEL)$(filter -j%,$(MAKEFLAGS)),0)
MAKEFLAGS += -j$(shell nproc)
endif

# --- setup ---------------------------------------------------------------------------------------------------------
#
# scripts/setup ends by writing a makefile, which is included here.  So make runs it before anything else if it has not run to its
# end, and then starts again: all that is asked of the machine below (is nvcc here? which headers?) is asked when everything is
# there.  No rule needs to depend on it.
ifeq ($(SETUP),yes)
# What reads or removes files only; but for these, whatever is asked for needs the tools.
WITHOUT_SETUP := clean help format lint-includes uninstall fresh dist
ifneq ($(filter-out $(WITHOUT_SETUP),$(or $(MAKECMDGOALS),all)),)
include $(DEPS)/setup.mk
# It runs again if something that it provides has gone since; but once per make, whatever comes of it.
ifeq ($(MAKE_RESTARTS)$(shell UNITY_DIR=$(UNITY_DIR) scripts/setup --check >/dev/null 2>&1 && echo there),)
$(DEPS)/setup.mk: FORCE
endif
endif
$(DEPS)/setup.mk: scripts/setup $(wildcard scripts/wheels/*.txt)
	@echo "SETUP  scripts/setup: fetching what is missing (SETUP=no prevents this)"
	@UNITY_DIR=$(UNITY_DIR) scripts/setup
# More that only some targets need: $(call setup_for,lint).
$(DEPS)/.setup-%: scripts/setup
	@echo "SETUP  scripts/setup --with-$*: fetching what is missing (SETUP=no prevents this)"
	@UNITY_DIR=$(UNITY_DIR) scripts/setup --with-$*
setup_for = $(DEPS)/.setup-$(1)
endif

# --- flags ---------------------------------------------------------------------------------------------------------

WARNINGS := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wformat=2 -Wundef
ifneq ($(CI),)
WARNINGS += -Werror
endif
OUR_CFLAGS := -std=c11 -D_GNU_SOURCE -O2 -g -pthread -fPIC -fvisibility=hidden $(WARNINGS) -Iinclude -I.
OUR_LDFLAGS := -pthread

# FLAVOUR is set by the targets `san`, `tsan`, `fuzz` and `wheel` (portable), which call this Makefile again with another $(B).
FLAVOUR ?=
ifeq ($(FLAVOUR),san)
OUR_CFLAGS += -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
OUR_LDFLAGS += -fsanitize=address,undefined
else ifeq ($(FLAVOUR),tsan)
# GCC warns that the sanitizer does not see fences; where there are some, all that they order is atomic as well.
OUR_CFLAGS += -fsanitize=thread -Wno-tsan
OUR_LDFLAGS += -fsanitize=thread
else ifeq ($(FLAVOUR),fuzz)
OUR_CFLAGS += -fsanitize=fuzzer-no-link,address,undefined,float-cast-overflow -fno-sanitize-recover=undefined,float-cast-overflow \
    -fno-omit-frame-pointer
OUR_LDFLAGS += -fsanitize=fuzzer,address,undefined
endif

include scripts/harden.mk
COMPILE = $(CC) $(OUR_CFLAGS) $(HARDEN_CFLAGS) $(EXTRA_CFLAGS) $(CPPFLAGS) $(CFLAGS)
LINK = $(CC) $(OUR_LDFLAGS) $(HARDEN_LDFLAGS) $(LDFLAGS)

# A short line per step, or with V=1 the command itself.
ifeq ($(V),1)
Q :=
say := @:
else
Q := @
say := @printf '%-6s %s\n'
endif

# --- what there is -------------------------------------------------------------------------------------------------

objs = $(patsubst %.c,$(B)/obj/%.o,$(1))
libs = $(foreach l,$(1),$(B)/lib/lib$(l).a)
# What tells one build of the shim and of the best-effort part from another; both have it inside.
BUILD_ID := $(B)/obj/build_id.o

include scripts/machine.mk
LIBRARIES :=
PROGRAMS :=
SHARED :=
include $(sort $(filter-out test/%,$(wildcard */rules.mk */*/rules.mk)))

LIB_FILES := $(call libs,$(LIBRARIES))
BIN_FILES := $(addprefix $(B)/bin/,$(PROGRAMS))
SHARED_FILES := $(addprefix $(B)/lib/tally/,$(SHARED))
MAN_FILES := $(patsubst docs/man/%.scd,$(B)/share/man/man1/%, \
    $(filter-out $(if $(PROTOC_C),,docs/man/tally-device-plugin.1.scd),$(wildcard docs/man/*.1.scd)))
# What every program may need from outside, behind our libraries; in the portable build all of it is inside.
SYSTEM_LIBS := $(if $(filter portable,$(FLAVOUR)),-l:libelf.a -l:liblz4.a -l:libzstd.a -l:libz.a,-lelf -llz4 -lzstd)

all: $(LIB_FILES) $(BIN_FILES) $(SHARED_FILES) $(MAN_FILES)

# --- rules ---------------------------------------------------------------------------------------------------------

# Rewritten only when the flags differ, so that objects of other flags are made anew.
$(B)/obj/.flags: EXTRA_CFLAGS :=
$(B)/obj/.flags: FORCE
	@mkdir -p $(@D)
	@echo '$(subst ','\'',$(COMPILE))' | cmp -s - $@ || echo '$(subst ','\'',$(COMPILE))' >$@

$(B)/obj/%.o: %.c $(B)/obj/.flags
	$(say) CC $<
	@mkdir -p $(@D)
	$(Q)$(COMPILE) -MMD -MP -c -o $@ $<

$(B)/lib/%.a:
	$(say) AR $@
	@mkdir -p $(@D)
	@rm -f $@
	$(Q)$(AR) rcs $@ $^

# Put in place in one step, so that what runs meanwhile finds the old file or the new one.
define link_it
	$(say) LINK $@
	@mkdir -p $(@D)
	$(Q)$(LINK) $(HARDEN_PROGRAM) -o $@.new $(filter %.o,$^) $(filter %.a,$^) $(EXTRA_LIBS) $(SYSTEM_LIBS)
	$(Q)mv $@.new $@
endef
$(B)/bin/%:
	$(link_it)

# Each page has the version in its last line.
$(B)/share/man/man1/%: docs/man/%.scd VERSION
	@mkdir -p $(@D)
	@if command -v scdoc >/dev/null; then printf 'MAN    %s\n' $@; sed '1s/$$/ "Tally $(VERSION)"/' $< | scdoc >$@; \
	else echo "MAN    $@ left out: scdoc is missing"; fi

# A shared library needs nothing but libc from outside; a sanitizer's run-time library is in the program, not in what it opens.
comma := ,
NO_UNDEFINED := $(if $(findstring -fsanitize,$(OUR_CFLAGS) $(CFLAGS)),,-Wl$(comma)-z$(comma)defs)
$(SHARED_FILES): $(B)/lib/tally/%: $(B)/obj/base/version.o
	$(say) LINK $@
	@mkdir -p $(@D)
	$(Q)$(LINK) -shared -Wl,-soname,$(@F) $(NO_UNDEFINED) -Wl,-z,now -Wl,-Bsymbolic -Wl,--exclude-libs,ALL $($*_FLAGS) \
	    -o $@.new $(filter %.o,$^) $(filter %.a,$^) $($*_SYSTEM)
	$(Q)mv $@.new $@

define library_rule
$(B)/lib/lib$(1).a: $(call objs,$($(1)_SRCS))
ALL_SRCS += $($(1)_SRCS)
endef
define program_rule
$(B)/bin/$(1): $(call objs,$($(1)_SRCS)) $(call libs,$($(1)_LIBS))
ALL_SRCS += $($(1)_SRCS)
endef
define shared_rule
$(B)/lib/tally/$(1): $(call objs,$($(1)_SRCS)) $($(1)_OBJS) $(call libs,$($(1)_LIBS))
ALL_SRCS += $($(1)_SRCS)
endef
$(foreach l,$(LIBRARIES),$(eval $(call library_rule,$(l))))
$(foreach p,$(PROGRAMS),$(eval $(call program_rule,$(p))))
$(foreach s,$(SHARED),$(eval $(call shared_rule,$(s))))

# A digest of all that the shim and the best-effort part are made of.  The two share layouts that no version number covers, so they
# only work with each other (include/tally/effort.h).
BUILD_ID_FROM := $(sort $(foreach s,libcuda.so.1 libtally-effort.so,$($(s)_SRCS) $(foreach l,$($(s)_LIBS),$($(l)_SRCS))) \
    $(wildcard include/tally/*.h $(foreach r,base image sched ptx_rewrite intercept runtime,$(r)/*.h $(r)/*/*.h))) $(B)/obj/.flags
$(BUILD_ID): $(BUILD_ID_FROM)
	$(say) ID $@
	@mkdir -p $(@D)
	@id=$$(cat $(BUILD_ID_FROM) | sha256sum | cut -d' ' -f1) && \
	    echo "const char tl_build_id[] = \"$$id\";" | $(COMPILE) -c -x c -o $@ -

include test/rules.mk

# Fuzz targets and the corpus tool may use every library; no target runs or compiles kernels.
CORPUS_TOOL := $(if $(CORPUS_SRCS),$(B)/test/corpus-tool)
FUZZ_FILES := $(patsubst test/fuzz/%.c,$(B)/%,$(FUZZ_SRCS))
ALL_SRCS += $(CORPUS_SRCS) $(FUZZ_SRCS)
$(B)/test/corpus-tool: $(call objs,$(CORPUS_SRCS)) $(OUR_LIBS)
	$(link_it)
$(B)/%_fuzz: $(B)/obj/test/fuzz/%_fuzz.o $(call libs,tally_sim $(filter-out tally_exec tally_jit,$(LINK_ORDER)))
	$(link_it)
$(FUZZ_FILES): EXTRA_LIBS = -lm
$(call objs,$(FUZZ_SRCS)): EXTRA_CFLAGS = -Wno-missing-prototypes
# Some read with parts of programs.
ALL_SRCS += test/fuzz/good_record.c
$(B)/plan_fuzz: $(call objs,runtime/tally/plan_models.c)
$(B)/rules_fuzz: $(call objs,runtime/tallyd/rules.c)
$(B)/trace_fuzz: $(call objs,sim/trace.c sim/trace_job.c)
$(B)/record_fuzz: $(call objs,test/fuzz/good_record.c sim/trace_job.c)
$(B)/scenario_fuzz: $(call objs,test/fuzz/good_record.c sim/scenario.c sim/trace_job.c)

-include $(patsubst %.c,$(B)/obj/%.d,$(ALL_SRCS))

# --- targets -------------------------------------------------------------------------------------------------------

tests: all $(TEST_FILES) $(CORPUS_TOOL) $(STANDIN)

# Scripts may use whatever is built for tests; programs need no other program.
UNITS_ASKED := $(filter $(if $(T),$(T:%=$(B)/test/%_test),%),$(TEST_FILES))
SCRIPTS_ASKED := $(filter $(if $(T),$(T:%=test/integration/%.sh),%),$(wildcard test/integration/*.sh))
test: $(if $(SCRIPTS_ASKED),tests,all $(UNITS_ASKED) $(STANDIN))
	@TALLY_BUILD=$(B) test/run $(UNITS_ASKED) $(SCRIPTS_ASKED)

demo bench-isolation bench-sweep: all jobs
	@TALLY_BUILD=$(B) scripts/$@ $(BENCH_ARGS)

# Under AddressSanitizer the translator takes a multiple of its time.
san:
	@TEST_TIMEOUT=$${TEST_TIMEOUT:-1800} $(MAKE) --no-print-directory B=build/san FLAVOUR=san test

# What reads what strangers send, in a fraction of the time: the parser, the image reader, the wire, client and daemon.
SAN_QUICK := $(filter $(patsubst %,$(B)/test/%_test,$(addprefix ptx_rewrite/,lex names parse error print index defects initialiser) \
    image/% runtime/job/% runtime/record/% runtime/tallyd/daemon runtime/tallyd/harm),$(TEST_FILES))
san-quick:
	@$(MAKE) --no-print-directory B=build/san FLAVOUR=san san-quick-test
san-quick-test: $(SAN_QUICK)
	@TALLY_BUILD=$(B) test/run $(SAN_QUICK)

# Packages come from PyPI; OPTIONS=--rungs compares forced rungs bit by bit, OPTIONS="numba triton" runs only these.
# Suites that others wrote; SUITE names some of them.
suites: tests
	@TALLY_BUILD=$(B) scripts/suites $(OPTIONS) $(SUITE)

test-frameworks: tests
	@TALLY_BUILD=$(B) scripts/test-frameworks $(OPTIONS)

# Real engines: Slurm and others.  What is built depends on what they bring (headers), so make is called again once it is there.
test-engines: $(call setup_for,engines)
	@$(MAKE) --no-print-directory all jobs
	@TALLY_BUILD=$(B) scripts/test-engines $(T)

# Debian's PyTorch in a root of its own, which is made once; what is done is not done again (OPTIONS="--sample=50 --dtypes=float32").
test-torch-ops:
	@scripts/test-torch-ops $(OPTIONS)

bench-frameworks bench-start: all
	@TALLY_BUILD=$(B) scripts/$@ $(BENCH_ARGS)

tsan:
	@$(MAKE) --no-print-directory B=build/tsan FLAVOUR=tsan tsan-test

# What has threads.  Kernels and LLVM are not instrumented, and what they touch is theirs.  A child of a fork is asked for the threads of its
# parent, which it cannot end: leaks are not reported.
TSAN_TESTS := $(filter $(patsubst %,$(B)/test/%_test,device/exec/% device/driver/% device/service/client intercept/% runtime/job/client \
    runtime/tallyd/daemon runtime/tallyd/copies runtime/tallyd/gpus runtime/tallyd/harm runtime/record/% runtime/effort/% base/store),$(TEST_FILES))
tsan-test: all $(TSAN_TESTS) $(STANDIN)
	@TSAN_OPTIONS="die_after_fork=0 report_thread_leaks=0 suppressions=$(CURDIR)/test/tsan.supp $$TSAN_OPTIONS" TEST_TIMEOUT=$${TEST_TIMEOUT:-900} \
	    TALLY_BUILD=$(B) test/run $(TSAN_TESTS)

# The program itself, since what it measured is wanted as well.
soak-device: $(B)/test/device/exec/dead_test
	@TALLY_TEST_KILLS=1000 timeout 900 $<

soak-runtime: $(B)/test/runtime/tallyd/soak_test
	@TALLY_TEST_KILLS=1000 TEST_TIMEOUT=900 TALLY_BUILD=$(B) test/run $<

# Real jobs on two devices, and everything that can happen to jobs, at random.
SOAK_MINUTES ?= 2
soak: all jobs
	@TALLY_BUILD=$(B) scripts/soak --minutes=$(SOAK_MINUTES) $(if $(SEED),--seed=$(SEED))

# What attackers and rough environments do, for longer than in make test.
hostile: all jobs $(patsubst %,$(B)/test/runtime/tallyd/%_test,hostile harm flood soak) $(B)/test/device/exec/dead_test $(B)/test/ptx_rewrite/large_test
	@TALLY_BUILD=$(B) scripts/hostile

$(BENCH_SIDES): $(call setup_for,bench)

fuzz: $(call setup_for,fuzz)
	@$(MAKE) --no-print-directory B=build/fuzz FLAVOUR=fuzz CC=clang fuzz-build
	@FUZZ_SECONDS=$(FUZZ_SECONDS) FUZZ_JOBS=$(FUZZ_JOBS) scripts/fuzz build/fuzz $(T)

fuzz-build: $(FUZZ_FILES)

corpus: tests
	@TALLY_BUILD=$(B) scripts/corpus

# What make test does with some random kernels and some mutants of cases, with many and with all; SEED=n tries, and shows, the random
# kernel of that seed alone.
SEEDS ?= 10000
KERNELS ?= 200
verdict-campaign: $(B)/test/ptx_rewrite/random_waits_test $(B)/test/ptx_rewrite/mutants_test
	@SEEDS=$(SEEDS) FIRST=$(FIRST) $(B)/test/ptx_rewrite/random_waits_test
	@$(if $(SEED),,MUTANTS=0 KERNELS=$(KERNELS) $(B)/test/ptx_rewrite/mutants_test)
.PHONY: verdict-campaign

# Lint results are kept as stamps, so that only what changed is looked at again; all complaints come in one run.
# test/bench/device_opencl.c needs OpenCL's headers, which only the benchmark asks for; test/standin/nvtx.c needs NVTX's; the device plugin
# nghttp2's and protobuf-c's.
LINT_SRCS := $(filter-out $(if $(wildcard /usr/include/CL/cl.h),,test/bench/device_opencl.c) $(if $(NVTX_USER),,test/standin/nvtx.c) $(if $(SLURM_HEADER),,$(SLURM_SRCS)) $(if $(PROTOC_C),,runtime/tally-device-plugin/%) build/%, \
    $(wildcard */*.c */*/*.c test/unit/*/*.c test/unit/*/*/*.c))
LINT_HDRS := $(filter-out build/% workloads/% $(if $(PROTOC_C),,runtime/tally-device-plugin/%),$(wildcard */*.h */*/*.h test/unit/*/*.h test/unit/*/*/*.h))
LINT_SCRIPTS := scripts/completion.bash $(shell grep -lE '^\#!.*sh$$' .ci/run scripts/* scripts/package/* test/run test/*/*.sh 2>/dev/null)
LINT_STAMPS := $(LINT_SRCS:%=$(B)/lint/%.format) $(LINT_HDRS:%=$(B)/lint/%.format) $(LINT_SRCS:%=$(B)/lint/%.tidy) \
    $(LINT_HDRS:%=$(B)/lint/%.alone) $(LINT_SCRIPTS:%=$(B)/lint/%.shell)
# Who says what it does with locks (include/tally/lock.h): what names them, and the driver's files, whose headers do.
LOCK_STAMPS := $(patsubst %,$(B)/lint/%.locks,$(sort $(wildcard device/driver/*.c runtime/effort/*.c) $(shell grep -lF tally/lock.h $(filter-out test/%,$(LINT_SRCS)))))

$(B)/lint/%.format: % .clang-format
	@mkdir -p $(@D)
	@$(CLANG_FORMAT) --dry-run -Werror $< >$@.log 2>&1 || { echo "$<: not laid out as clang-format does (make format)"; exit 1; }
	@touch $@
# The analyzer sees one file at a time; told what tl_error_set returns, it believes that errors are errors.
$(B)/lint/errors.h: Makefile
	@mkdir -p $(@D)
	@printf '%s\n' '#include "tally/base.h"' 'void tl_lint_use(const void *err, ...);' \
	    '#define tl_error_set(err, code, ...) (tl_lint_use(err, __VA_ARGS__), (code))' \
	    '#define tl_error_errno(err, ...) (tl_lint_use(err, __VA_ARGS__), -1)' >$@
# Nearly all time goes to the analyzer's search through each function.  It finds what it finds early: with a tenth of the
# steps that it takes by default, the whole tree is a minute on two cores instead of ten.
TIDY_EFFORT := -Xclang -analyzer-config -Xclang max-nodes=20000
# Not for tests: it does not know that a failed assertion ends a test, and worries about what would follow.
TIDY_CHECKS = $(if $(filter test/%,$<),--checks='-clang-analyzer-*')
# What is generated for a file to include must be there; without CUDA's headers it cannot be.
LINT_GENERATED := $(VERSION_HEADER) $(B)/gen/needs_glibc.h $(if $(CUDA_INCLUDE),$(SHIM_TABLES)) $(DEVICE_PLUGIN_MESSAGES)
$(B)/lint/%.c.tidy: %.c .clang-tidy $(LINT_HDRS) | $(B)/lint/errors.h $(LINT_GENERATED)
	$(say) TIDY $<
	@mkdir -p $(@D)
	$(Q)$(CLANG_TIDY) --quiet $(TIDY_CHECKS) --warnings-as-errors='*' $< -- $(filter-out -Werror,$(OUR_CFLAGS)) $(TIDY_EFFORT) -Wno-missing-prototypes \
	    $(if $(filter base/error.c,$<),,-include $(B)/lint/errors.h) -I$(B)/gen -isystem $(UNITY_DIR) $(CUDA_FLAGS) $(UNITY_FLAGS) $(if $(filter device/% test/%,$<),$(LLVM_CFLAGS)) 2>&1 | { grep -vE '^[0-9]+ warnings? (generated|treated)' || :; } >$@.log; \
	    if [ -s $@.log ]; then cat $@.log; exit 1; fi
	@touch $@
$(B)/lint/%.h.alone: %.h $(LINT_HDRS) | $(LINT_GENERATED)
	@mkdir -p $(@D)
	$(Q)$(COMPILE) -Werror -I$(B)/gen -isystem $(UNITY_DIR) $(CUDA_FLAGS) $(if $(filter device/% test/%,$<),$(LLVM_CFLAGS)) -fsyntax-only -x c $<
	@touch $@
$(B)/lint/%.shell: %
	$(say) SHELL $<
	@mkdir -p $(@D)
	$(Q)shellcheck -x $<
	@touch $@

$(B)/lint/%.locks: % $(LINT_HDRS) | $(LINT_GENERATED)
	@mkdir -p $(@D)
	$(Q)$(CLANG) $(OUR_CFLAGS) -Wno-everything -Wthread-safety -Werror -fsyntax-only -I$(B)/gen $(CUDA_FLAGS) $(if $(filter device/jit/%,$<),$(LLVM_CFLAGS)) $<
	@touch $@

lint: $(call setup_for,lint)
	@$(MAKE) --no-print-directory $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc)) -k lint-files
	@echo "lint: nothing to complain about"

lint-files: $(LINT_STAMPS) lint-locks lint-rooms lint-functions
# Comments above long functions; how long functions and files may be.
lint-functions:
	@scripts/check-functions
# Includes and symbols against scripts/rooms.txt; the objects must be there for that.
lint-rooms: all
	@scripts/check-rooms $(B)

# Locks as the code says that they are held, and as they are.
lint-locks: $(LOCK_STAMPS)
# Advice, not part of lint: includes that are of no use.
lint-includes:
	@scripts/check-includes

format:
	$(CLANG_FORMAT) -i $(LINT_SRCS) $(LINT_HDRS)

include scripts/install.mk

# The README's two commands where nothing is installed: all four are tried, one after the other.
fresh:
	@failed=; for suite in bookworm trixie; do for user in "" --user; do \
	    scripts/fresh --suite=$$suite $$user "make demo" "make test" || failed="$$failed $$suite$${user:+ as a user},"; \
	done; done; \
	if [ -n "$$failed" ]; then echo "fresh: failed on$${failed%,}"; exit 1; fi; \
	echo "fresh: make demo and make test work on bookworm and trixie, as root and as a user"

include scripts/package/package.mk

# Keeps what was fetched and what fuzzing learnt; `rm -rf build` removes that as well.
clean:
	rm -rf $(addprefix $(DEPS)/,bin lib obj gen test share install demo lint workloads san tsan portable dist fuzz/obj fuzz/lib) $(DEPS)/fuzz/*_fuzz

help:
	@echo "make            build libraries and tools into build/lib and build/bin"
	@echo "make test       build and run all tests; T=device/exec/fiber runs one file, T=\"ptx_rewrite/% sim\" several"
	@echo "make suites     test suites that others wrote, on the software device (SUITE=numba; docs/suites.md)"
	@echo "make test-engines  under real engines, started for the test: T=slurm runs one (test/engines)"
	@echo "make test-frameworks  TensorFlow, PyTorch, JAX and others from PyPI, on the software device: build/frameworks.json"
	@echo "make test-torch-ops  every operator of eager PyTorch against the CPU, on the software device: build/torch/ops.jsonl"
	@echo "make workloads  build the sample CUDA programs (workloads/cuda), where nvcc is"
	@echo "make demo       an inference server beside a trainer, under each way of sharing"
	@echo "make bench-isolation  the same for seven pairs, repeated: build/bench/isolation.json"
	@echo "make bench-frameworks  TensorFlow and torch.compile beside each other under priority: build/bench/frameworks.json"
	@echo "make bench-start  TensorFlow's start under tally-run against its start without a GPU: build/bench/start.json"
	@echo "make bench-sweep  loads from 0.1 to 0.9 and turnaround budgets, as plots: build/bench/sweep.html"
	@echo "make bench-salus bench-memory bench-gpulet  what those policies do for live jobs: build/bench/*.json"
	@echo "make results    simulate the published comparisons: docs/results.md, build/results/index.html"
	@echo "make lint       formatting, static analysis, shell scripts, headers that compile alone, locks, who uses whom, lengths"
	@echo "make lint-includes  advice: which includes are of no use"
	@echo "make format     let clang-format write the C files"
	@echo "make san        the tests with address and undefined-behaviour sanitizers (build/san)"
	@echo "make san-quick  a part of them: what reads what strangers send"
	@echo "make tsan       the tests of what runs kernels, with the thread sanitizer (build/tsan)"
	@echo "make bench-device  the software device against PoCL and native code (build/bench/device.json)"
	@echo "make soak        jobs on two devices and everything that can happen to them (SOAK_MINUTES=2, SEED=n)"
	@echo "make hostile     the whole campaign of docs/security.md: hostile peers, soak, fuzzing (HOSTILE_FLOOD, SOAK_MINUTES, FUZZ_SECONDS)"
	@echo "make soak-device  kill 1000 processes that use the shared device"
	@echo "make soak-runtime  kill 1000 times high jobs, low jobs and tallyd, and measure recovery"
	@echo "make fuzz       each fuzz target for FUZZ_SECONDS=$(FUZZ_SECONDS), FUZZ_JOBS=$(FUZZ_JOBS) at once; T=NAME runs one"
	@echo "make corpus     measure the rewriter on the PTX that real libraries ship"
	@echo "make verdict-campaign  SEEDS=$(SEEDS) random kernels whose blocks meet: what verdicts allow must end when cut"
	@echo "make bench-polls  what asking whether to leave costs kernels in pieces (build/bench/polls.json)"
	@echo "make bench-gate  what gating machine code takes (build/bench/gate.json); BENCH_ARGS='LIBRARY --arch=80'"
	@echo "make bench-launch  what a launch and a whole job cost more under Tally (build/bench/launch.json)"
	@echo "make fresh      make demo and make test in clean roots: Debian 12 and 13, as root and as a user (takes root)"
	@echo "make dist deb wheel  a source archive, Debian packages, a Python wheel: build/dist; make packages-test tries them"
	@echo "make install    into DESTDIR= PREFIX=$(PREFIX); make uninstall removes it again"
	@echo "make clean      remove what was built"
	@echo "Variables: V=1 shows commands; CFLAGS, LDFLAGS are appended; CI=1 makes warnings errors; UNITY_DIR= is a copy"
	@echo "of Unity; SETUP=no keeps make from calling scripts/setup; TEST_TIMEOUT=300 seconds per test file."

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SECONDARY:
.PHONY: all tests test suites test-engines test-frameworks test-torch-ops bench-frameworks bench-start demo bench-isolation bench-sweep san san-quick san-quick-test tsan tsan-test soak soak-device soak-runtime hostile fuzz fuzz-build corpus lint lint-files lint-functions lint-includes lint-locks lint-rooms format fresh clean help FORCE
