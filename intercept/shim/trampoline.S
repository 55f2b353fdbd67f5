/* The entry points of the interception library (x86-64).
 *
 * Every exported driver function is one indirect jump through its slot, so forwarding needs no signature, moves no argument
 * and costs about a nanosecond:
 *
 *     cuLaunchKernel:  jmp *tl_slots[i]  ──►  at first: resolve, which opens the real driver and fills all slots
 *                                        ──►  then: a hook of ours, or the real function itself
 *
 * Entries are 16 bytes apart in the order of shim_names.inc, so that the address of an entry follows from its index. */

        .text
        .macro  entry name
        .globl  \name
        .type   \name, @function
        .p2align 4
\name:
        endbr64
        jmp     *tl_slots + 8 * index(%rip)
        .size   \name, . - \name
        .set    index, index + 1
        .endm

        .macro  first_call name
        .p2align 4
        endbr64
        movl    $index, %r11d
        jmp     resolve
        .set    index, index + 1
        .endm

        .macro  slot name
        .quad   first_calls + 16 * index
        .set    index, index + 1
        .endm

        .globl  tl_entries
        .hidden tl_entries
        .p2align 4
tl_entries:
        .set    index, 0
#define TL_DRIVER_NAME(name) entry name
#include "shim_names.inc"
#undef TL_DRIVER_NAME

        .p2align 4
first_calls:
        .set    index, 0
#define TL_DRIVER_NAME(name) first_call name
#include "shim_names.inc"
#undef TL_DRIVER_NAME

/* A first call, its index in r11: keeps every register that can hold an argument, asks where to go, and goes there. */
        .p2align 4
        .type   resolve, @function
resolve:
        .cfi_startproc
        pushq   %rbp
        .cfi_def_cfa_offset 16
        .cfi_offset %rbp, -16
        movq    %rsp, %rbp
        .cfi_def_cfa_register %rbp
        pushq   %rdi
        pushq   %rsi
        pushq   %rdx
        pushq   %rcx
        pushq   %r8
        pushq   %r9
        subq    $128, %rsp
        movups  %xmm0, (%rsp)
        movups  %xmm1, 16(%rsp)
        movups  %xmm2, 32(%rsp)
        movups  %xmm3, 48(%rsp)
        movups  %xmm4, 64(%rsp)
        movups  %xmm5, 80(%rsp)
        movups  %xmm6, 96(%rsp)
        movups  %xmm7, 112(%rsp)
        movl    %r11d, %edi
        call    tl_driver_resolve
        movq    %rax, %r11
        movups  (%rsp), %xmm0
        movups  16(%rsp), %xmm1
        movups  32(%rsp), %xmm2
        movups  48(%rsp), %xmm3
        movups  64(%rsp), %xmm4
        movups  80(%rsp), %xmm5
        movups  96(%rsp), %xmm6
        movups  112(%rsp), %xmm7
        addq    $128, %rsp
        popq    %r9
        popq    %r8
        popq    %rcx
        popq    %rdx
        popq    %rsi
        popq    %rdi
        popq    %rbp
        .cfi_def_cfa %rsp, 8
        jmp     *%r11
        .cfi_endproc
        .size   resolve, . - resolve

/* dlsym(handle, name): functions of a driver or a compiler asked of an opened library are looked at by tl_dlsym, which turns them
 * into ours.  Everything else jumps on to libc's: that one must see the caller's own return address, because
 * RTLD_NEXT and the search for RTLD_DEFAULT begin there. */
        .globl  dlsym
        .type   dlsym, @function
        .p2align 4
dlsym:
        .cfi_startproc
        endbr64
        testq   %rsi, %rsi
        je      1f
        leaq    1(%rdi), %rax           /* RTLD_NEXT is -1, RTLD_DEFAULT is 0 */
        cmpq    $1, %rax
        jbe     1f
        movzbl  (%rsi), %eax
        testl   %eax, %eax
        je      1f
        movb    1(%rsi), %ah
        cmpw    $0x7563, %ax            /* cu: the driver */
        je      tl_dlsym
        cmpw    $0x766e, %ax            /* nv: NVRTC, nvJitLink */
        je      tl_dlsym
        cmpw    $0x5f5f, %ax            /* __: __nvJitLink... */
        je      tl_dlsym
1:      movq    tl_libc_dlsym(%rip), %r11
        testq   %r11, %r11
        je      2f
        jmp     *%r11
2:      pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        subq    $8, %rsp
        .cfi_adjust_cfa_offset 8
        call    tl_dlsym_find
        addq    $8, %rsp
        .cfi_adjust_cfa_offset -8
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        jmp     *%rax
        .cfi_endproc
        .size   dlsym, . - dlsym

        .data
        .globl  tl_slots
        .hidden tl_slots
        .p2align 3
tl_slots:
        .set    index, 0
#define TL_DRIVER_NAME(name) slot name
#include "shim_names.inc"
#undef TL_DRIVER_NAME

        .section .note.GNU-stack, "", @progbits
