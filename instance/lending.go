package instance

import (
	"bytes"
	"context"
	"unsafe"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// LendingEngine is a RequestEngine that lends memory of its own: what a batch would
// be copied into and out of is put together and read there.
type LendingEngine interface {
	RequestEngine
	// Lend gives size bytes for an input, which the engine then takes as it is, and
	// what gives them back; nil if it has none to lend now. It may be called while a
	// batch runs.
	Lend(size int) (buffer []byte, release func())
	// RunLent is RunRequests, but that the outputs' data may be looked at only until
	// release, which is never nil, is called. It is not to be written to.
	RunLent(ctx context.Context, rows []int, inputs []tensor.Tensor) (outputs [][]tensor.Tensor, failed []error, release func(), err error)
}

// room is memory for an input of a batch: the engine's, or a lent buffer of ours.
func (s *Server) room(size int) (buffer []byte, release func()) {
	if e, ok := s.engine.(LendingEngine); ok {
		if buffer, release := e.Lend(size); buffer != nil {
			return buffer, release
		}
	}
	ours := s.buffers.get(size)
	return *ours, func() { s.buffers.put(ours) }
}

// runRequests has an engine run a batch request by request; release, never nil,
// takes back what the outputs are in.
func runRequests(ctx context.Context, e RequestEngine, rows []int, inputs []tensor.Tensor) (outputs [][]tensor.Tensor, failed []error, release func(), err error) {
	if lending, ok := e.(LendingEngine); ok {
		return lending.RunLent(ctx, rows, inputs)
	}
	outputs, failed, err = e.RunRequests(ctx, rows, inputs)
	return outputs, failed, func() {}, err
}

// own makes a response independent of the outputs that it was made from: bare
// elements are a tensor's data as it lies.
func own(r frame.Response, outputs []tensor.Tensor) frame.Response {
	for _, t := range outputs {
		if len(r.Body) > 0 && len(t.Data) > 0 && unsafe.SliceData(r.Body) == unsafe.SliceData(t.Data) {
			r.Body = bytes.Clone(r.Body)
		}
	}
	return r
}
