//go:build race

package onnxruntime

// raced says that the race detector runs, with which cutting whole models takes minutes.
const raced = true
