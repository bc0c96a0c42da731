//go:build !race

package onnxruntime

const raced = false
