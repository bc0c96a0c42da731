package processing_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance/logtest"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/instance/processing"
	"github.com/faas-infer/faas-infer/instance/python"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// BenchmarkHandler is a batch with the template's handler, and without.
func BenchmarkHandler(b *testing.B) {
	if err := onnxruntime.Load(""); err != nil {
		b.Fatal(err)
	}
	p, err := processing.InPlace(built(b, filepath.Join(template, "function")))
	if err != nil {
		b.Fatal(err)
	}
	with, err := processing.Open(b.Context(), processing.Options{Prepared: p, Threads: 1, Log: &logtest.Log{}, Logger: zerolog.Nop()})
	if err != nil {
		b.Fatal(err)
	}
	defer with.Close()
	without, err := onnxruntime.Open(onnxruntime.Options{Model: filepath.Join(p.Dir, p.Model), Threads: 1})
	if err != nil {
		b.Fatal(err)
	}
	defer without.Close()
	for _, rows := range []int{1, 32, 1 << 16} {
		inputs := python.Sample(with.Inputs(), rows, 1)
		for name, run := range map[string]func() ([]tensor.Tensor, error){
			"handler": func() ([]tensor.Tensor, error) { return with.Run(b.Context(), rows, inputs) },
			"alone":   func() ([]tensor.Tensor, error) { return without.Run(b.Context(), rows, inputs) },
		} {
			b.Run(fmt.Sprintf("%s/rows=%d", name, rows), func(b *testing.B) {
				for b.Loop() {
					if _, err := run(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
