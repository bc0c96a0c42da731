//go:build !amd64

package onnxruntime

// flushDenormals does nothing: CPUs other than x86 handle denormal numbers at full
// speed, or ONNX Runtime's own setting covers them.
func flushDenormals() (before uint32) { return 0 }

func restoreDenormals(uint32) {}
