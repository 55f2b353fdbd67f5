# What makes a mistake in our code harder to use against those who run it; checked by
# test/integration/hardened.sh.
#
# Sanitizers find the same and more, and their own checks of libc's functions do not go with those
# of FORTIFY: such builds have none of it.  A packager's flags (CFLAGS, CPPFLAGS, LDFLAGS) come
# behind these and win.
#
# Left out: -fcf-protection.  A program that is marked for shadow stacks must not switch stacks by
# hand, which the fibers of the software device do (device/exec/fiber.c), and kernels that were
# compiled at run time have no marks for branches to them.  Where the compiler has it on by itself,
# as Ubuntu's does, it is turned off, so that no file carries a promise that it does not keep.  It
# would also cost every launch about 0.4 ns of 13.
ifeq ($(filter san tsan fuzz,$(FLAVOUR)),)
HARDEN_CFLAGS := -fstack-protector-strong -fstack-clash-protection -fcf-protection=none \
    -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
HARDEN_LDFLAGS := -Wl,-z,relro,-z,now,-z,noexecstack
# Not for libraries; everything is compiled as position-independent code.
HARDEN_PROGRAM := -pie
endif
