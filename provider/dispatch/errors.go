package dispatch

import (
	"net/http"
	"time"

	"github.com/faas-infer/faas-infer/provider/web"
)

// Errors of requests that fail outside the function's execution.
var (
	// ErrLate: the deadline can no longer be met, so the request is not run.
	ErrLate = &web.Error{Status: http.StatusServiceUnavailable, After: time.Second, Text: "the latency objective can no longer be met for this request; try again later or lower the load"}
	// ErrLateTexts is ErrLate for a request of several texts. It may be late at any load.
	ErrLateTexts = &web.Error{Status: http.StatusServiceUnavailable, After: time.Second, Text: "the latency objective can no longer be met " +
		"for all texts of this request; send fewer texts in a request, or lower the load"}
	// ErrCold: no instance became ready in time.
	ErrCold = &web.Error{Status: http.StatusServiceUnavailable, After: time.Second, Text: "no instance of the function became ready in time; see its status for the reason"}
	// ErrQueueFull: too many requests wait for the function already.
	ErrQueueFull = &web.Error{Status: http.StatusTooManyRequests, After: time.Second, Text: "too many requests wait for this function; try again later"}
	// ErrInstanceLost: the instance died with the request, and there was no time to
	// run it again, or it was run again already.
	ErrInstanceLost = &web.Error{Status: http.StatusBadGateway, Text: "the instance that executed this request died"}
	// ErrRefused: the instance refused the batch.
	ErrRefused = &web.Error{Status: http.StatusBadGateway, Text: "the instance refused the batch that this request was in"}
	// ErrExhausted: the provider has no file descriptor or memory left to
	// reach an instance.
	ErrExhausted = &web.Error{Status: http.StatusServiceUnavailable, After: time.Second, Text: "the provider is out of connections; try again later"}
	// ErrInternal: the provider has failed on the request; its log says how.
	ErrInternal = &web.Error{Status: http.StatusInternalServerError, Text: "the provider failed on this request; see its log"}
	// ErrClosed: the function was removed or the provider is stopping.
	ErrClosed = &web.Error{Status: http.StatusServiceUnavailable, After: time.Second, Text: "the function is being removed or the provider is stopping"}
)

// late is the error of a call that can no longer be answered in time.
func (c *call) late() error {
	if of := c.look.format; c.look.rows > 1 && (of == worded || of == inTokens || of == sampled) {
		return ErrLateTexts
	}
	return ErrLate
}
