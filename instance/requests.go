package instance

import (
	"context"
	"errors"
	"net/http"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// RequestEngine is an Engine that receives the boundaries between requests in a batch.
// It can fail for one request and succeed for another.
type RequestEngine interface {
	Engine
	// RunRequests computes one batch of requests. rows holds each request's number of
	// rows. inputs are those of Run: the requests' rows one after another. Every request
	// gets its own outputs or its own error. err concerns the whole batch.
	RunRequests(ctx context.Context, rows []int, inputs []tensor.Tensor) (outputs [][]tensor.Tensor, failed []error, err error)
}

// lost reports whether an error says that the process that ran the batch hung or died.
// The requests of such a batch do not run again one by one.
func lost(err error) bool {
	var l interface{ Lost() bool }
	return errors.As(err, &l) && l.Lost()
}

// statusOf is the status of a request whose run failed alone. An engine's error may say that the
// request's inputs caused it and not the instance: it then has the method HTTPStatus. A client
// must not send such a request again unchanged.
func statusOf(err error) int {
	var known interface{ HTTPStatus() int }
	if errors.As(err, &known) {
		return known.HTTPStatus()
	}
	return http.StatusInternalServerError
}
