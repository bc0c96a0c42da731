package onnxruntime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// separate is the number of tensors between blocks that the tests cut at.
const separate = 8

// Segments of the optimised graph, one after the other, give the whole model's answer to the
// last bit: whole batches, and rows that two engines compute.
func TestSegmentsKeepTheBits(t *testing.T) {
	for _, name := range []string{"mnist", "textcnn-69", "lstm-2365", "bert-small", "resnet-20", "mobilenet", "ssd"} {
		t.Run(name, func(t *testing.T) {
			p, err := Prepare(zooFile(t, name), t.TempDir(), PrepareOptions{})
			if err != nil {
				t.Fatal(err)
			}
			s, err := p.Segments(separate)
			if err != nil {
				t.Fatal(err)
			}
			whole := mustOpen(t, Options{Prepared: p.Dir, Threads: 1, Divided: true})
			const rows = 5
			x := whole.signature.sample(rows)
			want, err := whole.Run(context.Background(), rows, x)
			if err != nil {
				t.Fatal(err)
			}
			for _, size := range []int{1, 3} {
				for _, first := range []int{rows, 2} { // Of two engines, or of one.
					have := make(map[string]tensor.Tensor)
					for _, in := range x {
						have[in.Name] = in
					}
					for at := 0; at < s.Blocks(); at += size {
						runSegment(t, s, at, min(at+size, s.Blocks()), rows, first, have)
					}
					for _, w := range want {
						if !bytes.Equal(have[w.Name].Data, w.Data) {
							t.Errorf("segments of %d blocks, rows %d and %d: %q is not the whole model's", size, first, rows-first, w.Name)
						}
					}
				}
			}
		})
	}
}

// runSegment runs the first rows and the others apart, and adds the outputs to have.
func runSegment(t *testing.T, s *Segments, from, end, rows, first int, have map[string]tensor.Tensor) {
	t.Helper()
	part, err := s.Segment(from, end)
	if err != nil {
		t.Fatal(err)
	}
	e, err := part.Open(Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for _, span := range [][2]int{{0, first}, {first, rows}} {
		if span[0] == span[1] {
			continue
		}
		var in []tensor.Tensor
		for _, i := range part.Inputs {
			x := have[i.Name]
			row := len(x.Data) / rows
			shape := append([]int64{int64(span[1] - span[0])}, x.Shape[1:]...)
			in = append(in, tensor.Tensor{Name: i.As, Type: x.Type, Shape: shape, Data: x.Data[span[0]*row : span[1]*row]})
		}
		out, err := e.Run(context.Background(), span[1]-span[0], in)
		if err != nil {
			t.Fatal(fmt.Errorf("blocks %d to %d: %w", from, end-1, err))
		}
		for i, o := range part.Outputs {
			joined := have[o.Name]
			if span[0] == 0 {
				joined = tensor.Tensor{Name: o.Name, Type: out[i].Type, Shape: append([]int64{int64(rows)}, out[i].Shape[1:]...)}
			}
			joined.Data = append(joined.Data, out[i].Data...)
			have[o.Name] = joined
		}
	}
}

// A model that loads sooner in ONNX Runtime's own format keeps the packed files beside it, so it can
// be divided. Without them the error says what to do.
func TestSegmentsBesideTheOwnFormat(t *testing.T) {
	plain, err := formOf(Options{Model: zooFile(t, "mnist")})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	p := Prepared{Engine: Version(), CPU: hostCPU(), signature: plain.signature}
	for _, format := range []Format{FormatPacked, FormatORT} {
		if err := writeFormat(plain, dir, format); err != nil {
			t.Fatal(err)
		}
	}
	p.Format, p.Beside = FormatORT, true
	if err := errors.Join(keepGraph(plain, dir), p.keep(dir)); err != nil {
		t.Fatal(err)
	}
	if p, err = ReadPrepared(dir); err != nil {
		t.Fatal(err)
	}
	s, err := p.Segments(separate)
	if err != nil {
		t.Fatal(err)
	}
	whole := mustOpen(t, Options{Prepared: dir, Threads: 1, Divided: true})
	x := whole.signature.sample(2)
	want, err := whole.Run(t.Context(), 2, x)
	if err != nil {
		t.Fatal(err)
	}
	have := make(map[string]tensor.Tensor)
	for _, in := range x {
		have[in.Name] = in
	}
	for at := range s.Blocks() {
		runSegment(t, s, at, at+1, 2, 1, have)
	}
	if !bytes.Equal(have[want[0].Name].Data, want[0].Data) {
		t.Error("the segments' answer is not the whole model's")
	}
	if own, err := mustOpen(t, Options{Prepared: dir, Threads: 1}).Run(t.Context(), 2, x); err != nil || same(want, own) != nil {
		t.Errorf("the own format: %v", err)
	}
	for why, p := range map[string]Prepared{
		"its graph is missing":                  {Dir: "/some/dir", Format: FormatPacked},
		"it has no graph: unknown":              {Dir: "/some/dir", Format: FormatPacked, GraphError: "unknown"},
		"remove /some/dir and prepare it again": {Dir: "/some/dir", Format: FormatORT, LoadSeconds: map[Format]float64{FormatPacked: 1}},
		"could only write it":                   {Format: FormatORT},
		"is being prepared":                     {Format: FormatPlain},
	} {
		if _, err := p.Segments(separate); !errors.Is(err, ErrNoSegments) || !strings.Contains(err.Error(), why) {
			t.Errorf("%v, not %q", err, why)
		}
		_, err := p.Segments(separate)
		if lasting := why == "could only write it" || p.GraphError != ""; errors.Is(err, ErrIndivisible) != lasting {
			t.Errorf("of the model itself: %v, want %v: %v", !lasting, lasting, err)
		}
	}
}
