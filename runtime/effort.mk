# The best-effort part, opened by the shim in jobs that may have to give way.  It links libc only, with the archives of lz4 and
# zstd; the parts that it needs are compiled as position-independent code.
EFFORT_SRCS := $(wildcard runtime/effort_*.c)
EFFORT_NEEDS := $(EFFORT_SRCS) $(wildcard base/*.c runtime/record*.c runtime/client*.c) \
    $(addprefix runtime/,settings.c share.c wire.c) $(filter-out ptx_rewrite/tool_%.c,$(wildcard ptx_rewrite/*.c)) \
    $(addprefix intercept/image_,elf.c fatbin.c memory.c names.c text.c unpack.c)
EFFORT_OBJS := $(patsubst %.c,$(B)/pic/%.o,$(EFFORT_NEEDS))
EFFORT_FILES := $(if $(CUDA_INCLUDE),$(B)/lib/tally/libtally-effort.so)
all: $(EFFORT_FILES)

$(patsubst %.c,$(B)/pic/%.o,$(EFFORT_SRCS)): EXTRA_CFLAGS = -isystem $(CUDA_INCLUDE)
$(B)/lib/tally/libtally-effort.so: $(EFFORT_OBJS)
	$(say) LINK $@
	@mkdir -p $(@D)
	$(Q)$(LINK) -shared -Wl,-soname,libtally-effort.so $(NO_UNDEFINED) -Wl,-z,now -Wl,-z,nodelete -Wl,-Bsymbolic \
	    -Wl,--exclude-libs,ALL -o $@.new $(EFFORT_OBJS) -l:liblz4.a -l:libzstd.a
	$(Q)mv $@.new $@
-include $(EFFORT_OBJS:.o=.d)

# A client that preempts at random, for the tests.
$(B)/test/preempter: $(B)/obj/test/standin/preempter.o $(B)/lib/libtally_client.a $(B)/lib/libtally_base.a
	$(link_it)
ALL_SRCS += test/standin/preempter.c
tests: $(B)/test/preempter
