	.arch armv8-a
	.file	"arm64.cpp"
	.text
	.align	2
	.p2align 4,,11
	.global	scale
	.type	scale, %function
scale:
.LFB0:
	.cfi_startproc
	cmp	x2, 0
	ble	.L1
	sub	x3, x2, #1
	cmp	x3, 3
	bls	.L8
	add	x4, x0, 4
	mov	x3, 0
	sub	x4, x1, x4
	cmp	x4, 8
	bhi	.L13
.L3:
	fmov	s2, 2.0e+0
	fmov	s1, 1.0e+0
	.p2align 3,,7
.L6:
	ldr	s0, [x0, x3, lsl 2]
	fmadd	s0, s0, s2, s1
	str	s0, [x1, x3, lsl 2]
	add	x3, x3, 1
	cmp	x2, x3
	bne	.L6
.L1:
	ret
	.p2align 2,,3
.L13:
	fmov	v3.4s, 2.0e+0
	lsr	x4, x2, 2
	fmov	v2.4s, 1.0e+0
	lsl	x4, x4, 4
	.p2align 3,,7
.L4:
	ldr	q1, [x0, x3]
	mov	v0.16b, v2.16b
	fmla	v0.4s, v1.4s, v3.4s
	str	q0, [x1, x3]
	add	x3, x3, 16
	cmp	x4, x3
	bne	.L4
	and	x3, x2, -4
	tst	x2, 3
	beq	.L1
	ldr	s0, [x0, x3, lsl 2]
	add	x4, x3, 1
	fmadd	s0, s0, s3, s2
	str	s0, [x1, x3, lsl 2]
	cmp	x2, x4
	ble	.L1
	ldr	s0, [x0, x4, lsl 2]
	add	x3, x3, 2
	lsl	x5, x4, 2
	fmadd	s0, s0, s3, s2
	str	s0, [x1, x4, lsl 2]
	cmp	x2, x3
	ble	.L1
	add	x2, x5, 4
	ldr	s0, [x0, x2]
	fmadd	s2, s0, s3, s2
	str	s2, [x1, x2]
	ret
	.p2align 2,,3
.L8:
	mov	x3, 0
	b	.L3
	.cfi_endproc
.LFE0:
	.size	scale, .-scale
	.align	2
	.p2align 4,,11
	.global	chain
	.type	chain, %function
chain:
.LFB1:
	.cfi_startproc
	movi	d0, #0
	cmp	x1, 0
	ble	.L14
	add	x1, x0, x1, lsl 3
	fmov	d2, 1.5e+0
	.p2align 3,,7
.L16:
	ldr	d1, [x0], 8
	fmadd	d0, d1, d0, d2
	cmp	x1, x0
	bne	.L16
.L14:
	ret
	.cfi_endproc
.LFE1:
	.size	chain, .-chain
	.align	2
	.p2align 4,,11
	.global	count
	.type	count, %function
count:
.LFB2:
	.cfi_startproc
	cbz	x1, .L21
	ldr	x0, [x0, x2, lsl 3]
	mul	x0, x1, x0
	ret
	.p2align 2,,3
.L21:
	mov	x0, 7
	ret
	.cfi_endproc
.LFE2:
	.size	count, .-count
	.align	2
	.p2align 4,,11
	.global	move
	.type	move, %function
move:
.LFB3:
	.cfi_startproc
	ldr	q0, [x0]
	str	q0, [x1]
	ret
	.cfi_endproc
.LFE3:
	.size	move, .-move
	.ident	"GCC: (Debian 12.2.0-14) 12.2.0"
	.section	.note.GNU-stack,"",@progbits
