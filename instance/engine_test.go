package instance

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/http"
	"sync"
	"testing"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/model/tensor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// poison is an element that makes a whole run fail.
const poison = -1

// doubler answers every element x with 2x. It checks that it never gets two batches at
// once or a batch above its maximum.
type doubler struct {
	t        *testing.T
	maxBatch int
	width    int64 // of a row; -1 leaves it open

	running sync.Mutex
	runs    []int // rows of each run
	// gate, if set, is received from in every run.
	gate chan struct{}
	last []tensor.Tensor
	// once: the last run was one of which nothing may run twice.
	once bool
}

func (d *doubler) Inputs() []tensor.Info {
	return []tensor.Info{{Name: "x", Type: tensor.FP32, Shape: []int64{-1, d.width}}}
}

func (d *doubler) Outputs() []tensor.Info {
	return []tensor.Info{{Name: "y", Type: tensor.FP32, Shape: []int64{-1, d.width}}}
}

func (d *doubler) Close() error { return nil }

func (d *doubler) Run(ctx context.Context, rows int, inputs []tensor.Tensor) ([]tensor.Tensor, error) {
	if !d.running.TryLock() {
		d.t.Error("two batches run at once")
		return nil, errors.New("two batches run at once")
	}
	defer d.running.Unlock()
	d.once = frame.Once(ctx)
	if d.gate != nil {
		select {
		case <-d.gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	x := inputs[0]
	n, err := tensor.Elements(x.Shape)
	if err != nil || rows < 1 || rows > d.maxBatch || x.Shape[0] != int64(rows) || n*4 != int64(len(x.Data)) {
		d.t.Errorf("run of %d rows with input %v of %d bytes, at most %d rows", rows, x.Shape, len(x.Data), d.maxBatch)
	}
	d.runs = append(d.runs, rows)
	d.last = inputs
	y := tensor.Tensor{Name: "y", Type: tensor.FP32, Shape: append([]int64(nil), x.Shape...), Data: make([]byte, len(x.Data))}
	for at := 0; at < len(x.Data); at += 4 {
		v := math.Float32frombits(binary.LittleEndian.Uint32(x.Data[at:]))
		if v == poison {
			return nil, errors.New("an element is poison")
		}
		binary.LittleEndian.PutUint32(y.Data[at:], math.Float32bits(2*v))
	}
	return []tensor.Tensor{y}, nil
}

func newTestServer(t *testing.T, d *doubler) *Server {
	t.Helper()
	d.t = t
	s, err := NewServer(d, Options{Name: "double", MaxBatch: d.maxBatch, BodyLimit: 1000, Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func invoke(body string) frame.Request {
	return frame.Request{Method: http.MethodPost, Path: "/", Header: http.Header{}, Body: []byte(body)}
}

// binaryInvoke sends rows of width one as a binary tensor.
func binaryInvoke(elements ...float32) frame.Request {
	text := fmt.Sprintf(`{"inputs":[{"name":"x","shape":[%d,1],"datatype":"FP32","parameters":{"binary_data_size":%d}}]}`,
		len(elements), 4*len(elements))
	r := invoke(text)
	for _, e := range elements {
		r.Body = binary.LittleEndian.AppendUint32(r.Body, math.Float32bits(e))
	}
	r.Header.Set("Inference-Header-Content-Length", fmt.Sprint(len(text)))
	return r
}
