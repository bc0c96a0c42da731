package peer

import (
	"net/http"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/instance/frame"
)

// tracing traces every request, and keeps the traces that have ended.
type tracing struct{ ended chan *frame.Trace }

func (a tracing) Begin(h http.Header, at time.Time) *frame.Trace {
	return &frame.Trace{State: h.Get("X-Test"), Begun: at}
}
func (a tracing) End(t *frame.Trace) { a.ended <- t }

// The owner of a function traces what another replica hands on, with the request's headers.
func TestTraceOfWhatIsHandedOn(t *testing.T) {
	where, all := several(t, 2)
	owner := where.owner(all)
	a := tracing{make(chan *frame.Trace, 4)}
	owner.options.Tracer = a // Nothing is asked of it yet.
	other := all[0]
	if other == owner {
		other = all[1]
	}
	if _, err := other.ask(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if got := <-a.ended; got.Step != frame.Handed || got.State != "header" || got.Function != name || got.Method != "PUT" || got.Status != 201 {
		t.Errorf("%+v", got)
	}
	owner.own.fails = frame.ErrFrame
	if _, err := other.ask(t.Context(), 0); err == nil {
		t.Error("no error")
	}
	if got := <-a.ended; got.Status != 500 {
		t.Errorf("%+v", got)
	}
}
