// Package instance is the server inside an instance. It takes batches of requests,
// concatenates their inputs along the batch dimension, runs them on an [Engine] and
// gives every request its own answer. It does not decide which requests form a batch:
// the dispatcher does. Begin with [Server.HandleBatch].
//
// # Between dispatcher and instance
//
// POST /v1/batch carries a whole batch in one HTTP request, in the format of
// package frame, version 1. Members keep their own method, path, headers and
// body, so one batch may hold requests of several protocols (package protocol).
// The answers come back in the same order, each with its own status: a member
// that cannot be read gets 400, one that is too large 413, one whose run failed
// 500, or 400 if its inputs are the cause, and its neighbours get their results. The dispatcher leaves out members whose
// clients have hung up before it sends the batch. If the connection breaks, the whole
// batch is cancelled. The header X-Faas-Infer-Exec-Us holds the engine's time in µs.
//
// The server also takes the same requests one by one, as plain HTTP.
package instance

import (
	"context"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// Engine runs a model. The server calls Run for one batch at a time, unless the engine is
// a [DistributedEngine].
type Engine interface {
	// Inputs and Outputs describe the model's inputs and outputs in its own order.
	// The first dimension of each is the batch, -1.
	Inputs() []tensor.Info
	Outputs() []tensor.Info
	// Run computes one batch. inputs are all of the model's inputs in its order, each
	// with rows as its first dimension. Run does not write to their data and does not
	// read it after it returns. The outputs belong to the caller and have rows as
	// their first dimension, too. An error concerns the whole batch. When ctx ends,
	// Run may return early with an error.
	Run(ctx context.Context, rows int, inputs []tensor.Tensor) ([]tensor.Tensor, error)
	// Close frees the model.
	Close() error
}

// unbatchedEngine is an Engine that may have a model whose rows must not be joined. Unbatched
// says why, "" for a model whose rows can be. Each request is then a row of its own.
type unbatchedEngine interface {
	Engine
	Unbatched() string
}

// DistributedEngine is an Engine that has other processes compute parts of a batch. Most of a
// run it waits, so the server may run several batches at the same time
// (Options.Concurrency). It ends a run's context once no member of the batch needs an answer
// any more: other processes may never answer.
type DistributedEngine interface {
	Engine
	// Distributed marks the engine. It does nothing.
	Distributed()
}
