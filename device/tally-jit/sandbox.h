/* What a worker of the compiler service may still ask of the kernel. */
#ifndef TALLY_DEVICE_TALLY_JIT_SANDBOX_H
#define TALLY_DEVICE_TALLY_JIT_SANDBOX_H

/* From now on this process can use its memory, its descriptors and its clock; it cannot open files,
 * connect, start processes or reach others.  What it may not do fails with EPERM, so that a library
 * that tries goes on.  0 or a negative errno value (a kernel without seccomp). */
int tl_jit_sandbox_enter(void);

#endif
