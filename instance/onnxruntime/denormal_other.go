//go:build !amd64

package onnxruntime

// flushDenormals does nothing: other CPUs than x86 handle denormal numbers at
// full speed or by ONNX Runtime's own setting.
func flushDenormals() (before uint32) { return 0 }

func restoreDenormals(uint32) {}
