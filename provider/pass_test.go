package provider

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/provider/metrics"
)

// panicking is an ordinary function's forwarder whose answers break off.
type panicking struct {
	dispatcherFunc
	with any
}

func (p panicking) Forward(http.ResponseWriter, *http.Request, string, time.Duration, func(int64) error) int {
	panic(p.with)
}

// An answer that breaks off counts with the status of its cause.
func TestAnswersThatBreakOffAreCounted(t *testing.T) {
	bug := errors.New("a bug")
	for _, c := range []struct {
		with any
		left bool
		code int
	}{{http.ErrAbortHandler, false, 502}, {http.ErrAbortHandler, true, 499}, {bug, false, 500}, {bug, true, 500}} {
		r := newRig(t, nil)
		r.controller.dispatcher = panicking{echo, c.with}
		r.deploy(t, nil)
		ctx, leave := context.WithCancel(t.Context())
		if c.left {
			leave()
		}
		func() {
			defer func() {
				// Other panics are answered.
				if p := recover(); p == nil != (c.with == any(bug)) {
					t.Errorf("%v ends in panic %v", c.with, p)
				}
			}()
			r.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", "/function/mnist", nil))
		}()
		leave()
		if got := r.Server.metrics.Invocations(); len(got) != 1 || got[0] != (metrics.Invocations{Function: got[0].Function, Code: c.code, Count: 1}) {
			t.Errorf("%v, client gone: %t: counted %v, want %d", c.with, c.left, got, c.code)
		}
	}
}
