package instance

import (
	"context"
	"errors"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// RequestEngine is an Engine that is told where one request's rows end and the
// next one's begin, and may fail for one and not for another.
type RequestEngine interface {
	Engine
	// RunRequests computes one batch of requests with so many rows each; inputs are
	// as with Run, the requests' rows one after another. Every request has its own
	// outputs or its own error. err concerns the whole batch.
	RunRequests(ctx context.Context, rows []int, inputs []tensor.Tensor) (outputs [][]tensor.Tensor, failed []error, err error)
}

// lost reports whether an error says that what ran the batch was lost with it, as a
// process that hung or died: the batch is not run again, one by one.
func lost(err error) bool {
	var l interface{ Lost() bool }
	return errors.As(err, &l) && l.Lost()
}
