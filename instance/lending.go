package instance

import (
	"bytes"
	"context"
	"unsafe"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// LendingEngine is a RequestEngine that lends its own memory. The server concatenates
// inputs and reads outputs there, which saves one copy each way.
type LendingEngine interface {
	RequestEngine
	// Lend returns a buffer of size bytes for an input, and the function that returns
	// it to the engine. The engine then reads that input without a copy. buffer is nil
	// if the engine has no memory free. Lend may be called while a batch runs.
	Lend(size int) (buffer []byte, release func())
	// RunLent is RunRequests, except that the outputs' data is read-only and valid
	// only until release is called. release is never nil.
	RunLent(ctx context.Context, rows []int, inputs []tensor.Tensor) (outputs [][]tensor.Tensor, failed []error, release func(), err error)
}

// inputBuffer returns memory for one input of a batch: the engine's if it lends some,
// otherwise a pooled buffer. Call release when the batch has run.
func (s *Server) inputBuffer(size int) (buffer []byte, release func()) {
	if e, ok := s.engine.(LendingEngine); ok {
		if buffer, release := e.Lend(size); buffer != nil {
			return buffer, release
		}
	}
	pooled := s.buffers.get(size)
	return *pooled, func() { s.buffers.put(pooled) }
}

// runRequests runs a batch with RunLent if the engine has it, otherwise with
// RunRequests. release is never nil and ends the use of the outputs. With a context of
// [partsRun.with] members get their answers in parts.
func runRequests(ctx context.Context, e RequestEngine, rows []int, inputs []tensor.Tensor) (outputs [][]tensor.Tensor, failed []error, release func(), err error) {
	if p, ok := ctx.Value(partsKey{}).(*partsRun); ok {
		return e.(PartsEngine).RunParts(ctx, rows, inputs, p.takes, p.take)
	}
	if lending, ok := e.(LendingEngine); ok {
		return lending.RunLent(ctx, rows, inputs)
	}
	outputs, failed, err = e.RunRequests(ctx, rows, inputs)
	return outputs, failed, func() {}, err
}

// unalias copies the body of a response that aliases the outputs' data. A response of
// raw elements does: its body is the tensor's data itself.
func unalias(r frame.Response, outputs []tensor.Tensor) frame.Response {
	for _, t := range outputs {
		if len(r.Body) > 0 && len(t.Data) > 0 && unsafe.SliceData(r.Body) == unsafe.SliceData(t.Data) {
			r.Body = bytes.Clone(r.Body)
		}
	}
	return r
}
