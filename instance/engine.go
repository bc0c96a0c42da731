// Package instance is the server inside an instance: it takes batches of
// requests, puts their inputs together along the batch dimension, has an
// [Engine] run them and gives every request its own answer.
//
// # Between dispatcher and instance
//
// POST /v1/batch carries a whole batch in one HTTP request, in the format of
// package frame, version 1. Members keep their own method, path, headers and
// body, so one batch may hold requests of several protocols (package protocol).
// The answers come back in the same order, each with its own status: a member
// that cannot be read gets 400, one that is too large 413, one whose run failed
// 500, and its neighbours their results. A member that its client has given up
// is left out by the dispatcher before it sends the batch; when the connection
// breaks, the whole batch is given up. The header X-Faas-Infer-Exec-Us tells how
// long the engine ran.
//
// The same requests are also taken one by one, as plain HTTP.
package instance

import (
	"context"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// Engine runs a model. The server calls Run for one batch at a time.
type Engine interface {
	// Inputs and Outputs describe the model in its own order; the first
	// dimension of each is the batch, -1.
	Inputs() []tensor.Info
	Outputs() []tensor.Info
	// Run computes one batch: inputs are all of the model's inputs in its
	// order, each with rows as its first dimension. It only reads their data,
	// and not after it returned. The outputs have rows as their first
	// dimension, too, and belong to the caller. An error concerns the whole
	// batch. When ctx ends, Run may give up.
	Run(ctx context.Context, rows int, inputs []tensor.Tensor) ([]tensor.Tensor, error)
	// Close frees the model.
	Close() error
}
