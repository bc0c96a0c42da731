#include "textflag.h"

// func vfork(number, a, b uintptr) (pid uintptr, errno syscall.Errno)
TEXT ·vfork(SB), NOSPLIT|NOFRAME, $0-40
	MOVQ number+0(FP), AX
	MOVQ a+8(FP), DI
	MOVQ b+16(FP), SI
	MOVQ $0, DX
	MOVQ $0, R10
	MOVQ $0, R8
	MOVQ $0, R9
	// The child's calls overwrite the return address, because both use one stack.
	POPQ R12
	SYSCALL
	PUSHQ R12
	CMPQ AX, $0xfffffffffffff001
	JCC failed
	MOVQ AX, pid+24(FP)
	MOVQ $0, errno+32(FP)
	RET
failed:
	NEGQ AX
	MOVQ $0, pid+24(FP)
	MOVQ AX, errno+32(FP)
	RET
