package onnxruntime

// #include <xmmintrin.h>
//
// static unsigned int flush(void) {
//   unsigned int before = _mm_getcsr();
//   _mm_setcsr(before | 0x8040); // flush to zero, denormals are zero
//   return before;
// }
// static void restore(unsigned int before) { _mm_setcsr(before); }
import "C"

// flushDenormals makes the calling thread treat denormal numbers as zero until
// restoreDenormals. The goroutine must be locked to its thread.
func flushDenormals() (before uint32) { return uint32(C.flush()) }

func restoreDenormals(before uint32) { C.restore(C.uint(before)) }
