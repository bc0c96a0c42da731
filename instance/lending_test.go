package instance

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// lender is a doubler that lends its own memory. It overwrites memory as soon as it is
// returned.
type lender struct {
	*doubler
	lent atomic.Int32
	none bool
	// taken counts inputs that were in its memory.
	taken   int
	buffers [][]byte
}

func spoil(b []byte) {
	for i := range b {
		b[i] = 0xff
	}
}

func (l *lender) Lend(size int) ([]byte, func()) {
	if l.none {
		return nil, nil
	}
	l.lent.Add(1)
	b := make([]byte, size)
	l.buffers = append(l.buffers, b)
	return b, func() { spoil(b); l.lent.Add(-1) }
}

func (l *lender) RunRequests(context.Context, []int, []tensor.Tensor) ([][]tensor.Tensor, []error, error) {
	return nil, nil, errors.New("RunLent is there")
}

func (l *lender) RunLent(ctx context.Context, rows []int, inputs []tensor.Tensor) ([][]tensor.Tensor, []error, func(), error) {
	if slices.ContainsFunc(l.buffers, func(b []byte) bool { return &b[0] == &inputs[0].Data[0] }) {
		l.taken++
	}
	total := 0
	for _, n := range rows {
		total += n
	}
	whole, err := l.Run(ctx, total, inputs)
	if err != nil {
		return nil, nil, func() {}, err
	}
	out, err := tensor.Split(whole, rows)
	if err != nil {
		return nil, nil, func() {}, err
	}
	l.lent.Add(1)
	return out, make([]error, len(rows)), func() { spoil(whole[0].Data); l.lent.Add(-1) }, nil
}

// TestLentMemory checks that the server builds a batch in the engine's memory, answers from
// it, and returns all of it, however the batch ended.
func TestLentMemory(t *testing.T) {
	bare := binaryInvoke(7, 8)
	bare.Body, bare.Header = bare.Body[len(bare.Body)-8:], http.Header{"Content-Type": {"application/octet-stream"}, "Accept": {"application/octet-stream"}}
	for name, c := range map[string]struct {
		none     bool
		maxBatch int
		requests []frame.Request
		want     []string
		taken    int
	}{
		"a batch":    {false, 8, []frame.Request{invoke(`{"instances":[[1]]}`), invoke(`{"instances":[[2],[3]]}`)}, []string{`[[2]]`, `[[4],[6]]`}, 1},
		"alone":      {false, 8, []frame.Request{invoke(`{"instances":[[1]]}`)}, []string{`[[2]]`}, 0},
		"bare":       {false, 8, []frame.Request{bare, invoke(`{"instances":[[1]]}`)}, []string{string(binaryInvoke(14, 16).Body[len(binaryInvoke(14, 16).Body)-8:]), `[[2]]`}, 1},
		"a failure":  {false, 8, []frame.Request{invoke(`{"instances":[[1]]}`), invoke(`{"instances":[[-1]]}`)}, []string{`[[2]]`, "poison"}, 1},
		"none lent":  {true, 8, []frame.Request{invoke(`{"instances":[[1]]}`), invoke(`{"instances":[[2]]}`)}, []string{`[[2]]`, `[[4]]`}, 0},
		"many parts": {false, 2, []frame.Request{invoke(`{"instances":[[1],[2],[3],[4],[5]]}`)}, []string{`[[2],[4],[6],[8],[10]]`}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			l := &lender{doubler: &doubler{t: t, maxBatch: c.maxBatch, width: 1}, none: c.none}
			s, err := NewServer(l, Options{Name: "double", MaxBatch: c.maxBatch, Logger: zerolog.Nop()})
			if err != nil {
				t.Fatal(err)
			}
			responses, _ := s.HandleBatch(t.Context(), c.requests)
			for i, want := range c.want {
				if got := string(responses[i].Body); !strings.Contains(got, want) {
					t.Errorf("answer %d is %q, want %q", i, got, want)
				}
			}
			if left := l.lent.Load(); left != 0 || l.taken != c.taken {
				t.Errorf("%d parts of its memory are still lent; it took %d inputs as they were, want %d", left, l.taken, c.taken)
			}
		})
	}
}
