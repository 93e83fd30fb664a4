# SPDX-License-Identifier: Apache-2.0
# A kernel as PoCL names its functions, with a loop for each thing that bench/inspect_kernel counts.  It is never run.
	.text
	.globl	_pocl_kernel_toy
	.type	_pocl_kernel_toy,@function
_pocl_kernel_toy:                       # PoCL does not start this one: its loop is not to be seen
1:	vfmadd231ps	(%rdi,%rax), %zmm1, %zmm2
	vfmadd231ps	64(%rdi,%rax), %zmm1, %zmm3
	vfmadd231ps	128(%rdi,%rax), %zmm1, %zmm4
	addq	$192, %rax
	jne	1b
	ret

	.type	helper,@function
helper:                                 # no frame: %rbp is any register
	movl	$16, %eax
2:	vmovups	(%rbp), %zmm1
	vfmadd231ps	8(%rbp){1to16}, %zmm1, %zmm2
	vfmadd231ps	%zmm1, %zmm1, %zmm3
	decl	%eax
	jne	2b
	jmp	*%rdx

	.globl	_pocl_kernel_toy_workgroup
	.type	_pocl_kernel_toy_workgroup,@function
_pocl_kernel_toy_workgroup:
	pushq	%rbp
	movq	%rsp, %rbp
	subq	$4096, %rsp
	call	helper
	xorl	%eax, %eax

	# A product that spills a pointer and a sum; an indexed private array is no spill, lea and nop read nothing.
3:	movq	16(%rsp), %rdx
	vmovups	256(%rsp,%rax), %zmm0
	vmovups	-64(%rbp), %zmm5
	vbroadcastss	(%rdx,%rax), %zmm1
	leaq	32(%rsp), %rcx
	nopw	0(%rax,%rax)
	vfmadd231ps	%zmm0, %zmm1, %zmm2
	vfmadd231ps	%zmm0, %zmm1, %zmm3
	vfmadd231ps	(%rdx){1to16}, %zmm0, %zmm4
	vfmadd231ps	%zmm0, %zmm1, %zmm5
	vmovups	%zmm5, -64(%rbp)
	addq	$64, %rax
	cmpq	%rax, %r8
	jne	3b

	# Two loops in a third: a polynomial, and gathers by hardware and by hand.
4:	vmovups	(%rdi), %ymm0
5:	vmulps	(%rsi), %ymm0, %ymm1
	vfmadd213ps	%ymm3, %ymm2, %ymm1
	vfmadd213ps	(%rcx), %ymm2, %ymm1
	vmovups	%ymm1, (%rsi)
	addq	$32, %rsi
	cmpq	%rsi, %r9
	jne	5b
6:	kxnorw	%k0, %k0, %k1
	vgatherqps	(%rdi,%zmm7,4), %ymm6{%k1}
	vmovss	(%rcx), %xmm8
	vinsertps	$16, 4(%rcx), %xmm8, %xmm8
	vaddss	%xmm8, %xmm8, %xmm8
	vaddps	%ymm6, %ymm6, %ymm6
	testq	%rcx, %rcx
	je	7f                              # back to the top by another way
	vmulps	%ymm6, %ymm6, %ymm6
	decq	%rcx
	jne	6b
	jmp	8f
7:	decq	%rdx
	jne	6b
8:	vaddps	%ymm0, %ymm0, %ymm0
	addq	$32, %rdi
	cmpq	%rdi, %r10
	jne	4b

	# No vector arithmetic: not shown.
9:	vmovups	(%rdi,%rax), %zmm0
	vmovups	%zmm0, (%rsi,%rax)
	addss	%xmm0, %xmm1
	addq	$64, %rax
	jne	9b

	# The matrix unit.
1:	tdpbf16ps	%tmm1, %tmm2, %tmm0
	tileloadd	(%rdi,%rax), %tmm1
	vdpbf16ps	%zmm1, %zmm2, %zmm3
	vdpbf16ps	%zmm1, %zmm2, %zmm4
	decl	%edx
	jne	1b
	leave
	ret
	.section	.note.GNU-stack,"",@progbits
