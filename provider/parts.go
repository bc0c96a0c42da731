package provider

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/web"
)

// eventType is the media type of server-sent events. A client that accepts it before any other one gets an answer in
// parts as such, as from the stock gateway.
const eventType = "text/event-stream"

// lastEvent ends the events of a whole answer. OpenAI's clients expect it.
const lastEvent = "[DONE]"

// takesEvents reports whether a client asks for its answer in parts.
func takesEvents(h http.Header) bool {
	accepted := h["Accept"]
	return len(accepted) > 0 && strings.HasPrefix(strings.ToLower(accepted[0]), eventType)
}

// events answers one request with an event for each part of the answer, if the function answers in parts.
type events struct {
	*web.Parts
	ctx   context.Context
	w     http.ResponseWriter
	begun bool
}

// newEvents returns the events of a request. The caller calls end.
func newEvents(w http.ResponseWriter, r *http.Request) *events {
	ctx, fail := context.WithCancelCause(r.Context())
	e := &events{ctx: ctx, w: w}
	e.Parts = web.NewParts(e.write, fail)
	return e
}

// write writes an event at once.
func (e *events) write(data []byte) error {
	if !e.begun {
		e.begun = true
		h := e.w.Header()
		h["Content-Type"] = []string{eventType}
		h["Cache-Control"] = []string{"no-store"}
		h["X-Content-Type-Options"] = []string{"nosniff"}
		h["X-Accel-Buffering"] = []string{"no"} // Proxies pass events on at once.
	}
	event := append([]byte("data: "), bytes.ReplaceAll(bytes.TrimSpace(data), []byte("\n"), []byte("\ndata: "))...)
	if _, err := e.w.Write(append(event, "\n\n"...)); err != nil {
		return err
	}
	return http.NewResponseController(e.w).Flush()
}

// end ends the events with the rest of the answer to a request below a path. It returns the status code that the
// answer counts as, 0 if no part has come: then nothing is written. late: the first part came after the objective.
func (e *events) end(d *deployed, path string, resp *frame.Response, err error, started time.Time) (code int, late bool) {
	count, first := e.Parts.End()
	if count == 0 {
		return 0, false
	}
	d.metrics.Answers.ObserveParts(count, first.Sub(started))
	var refused *web.Error
	if cause := context.Cause(e.ctx); cause != nil && !errors.As(err, &refused) {
		err = cause // The client has left, or reads too slowly.
	}
	switch {
	case err != nil:
		_ = e.write(web.ErrorJSON(path, err)) // It fails if the client is gone, as below.
		code = web.StatusOf(err)
		return code, d.leftLate(code, started, first)
	case resp.Status != http.StatusOK:
		_ = e.write(resp.Body)
	default:
		_ = e.write([]byte(lastEvent))
	}
	return resp.Status, resp.Late
}
