#include "textflag.h"

// func vfork(number, a, b uintptr) (pid uintptr, errno syscall.Errno)
// The return address is in a register, so the child cannot overwrite it.
TEXT ·vfork(SB), NOSPLIT, $0-40
	MOVD number+0(FP), R8
	MOVD a+8(FP), R0
	MOVD b+16(FP), R1
	MOVD $0, R2
	MOVD $0, R3
	MOVD $0, R4
	MOVD $0, R5
	SVC
	CMN $4095, R0
	BCS failed
	MOVD R0, pid+24(FP)
	MOVD ZR, errno+32(FP)
	RET
failed:
	NEG R0, R0
	MOVD ZR, pid+24(FP)
	MOVD R0, errno+32(FP)
	RET
