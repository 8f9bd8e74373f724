	.arch armv8.2-a+crc+sve
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
	add	x3, x0, 4
	cntb	x4
	sub	x3, x1, x3
	sub	x4, x4, #8
	cmp	x3, x4
	mov	x3, 0
	bls	.L6
	cntw	x4
	whilelo	p0.s, xzr, x2
	fmov	z2.s, #2.0e+0
	fmov	z1.s, #1.0e+0
	ptrue	p1.b, all
	.p2align 3,,7
.L4:
	ld1w	z0.s, p0/z, [x0, x3, lsl 2]
	fmad	z0.s, p1/m, z2.s, z1.s
	st1w	z0.s, p0, [x1, x3, lsl 2]
	add	x3, x3, x4
	whilelo	p0.s, x3, x2
	b.any	.L4
.L1:
	ret
	.p2align 2,,3
.L6:
	fmov	s2, 2.0e+0
	fmov	s1, 1.0e+0
	.p2align 3,,7
.L3:
	ldr	s0, [x0, x3, lsl 2]
	fmadd	s0, s0, s2, s1
	str	s0, [x1, x3, lsl 2]
	add	x3, x3, 1
	cmp	x2, x3
	bne	.L3
	ret
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
	ble	.L10
	add	x1, x0, x1, lsl 3
	fmov	d2, 1.5e+0
	.p2align 3,,7
.L12:
	ldr	d1, [x0], 8
	fmadd	d0, d1, d0, d2
	cmp	x1, x0
	bne	.L12
.L10:
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
	cbz	x1, .L17
	ldr	x0, [x0, x2, lsl 3]
	mul	x0, x1, x0
	ret
	.p2align 2,,3
.L17:
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
