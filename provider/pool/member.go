package pool

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/dispatch"
	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/provider/web"
)

// member is a function in a pool. It hands its requests to the pool's dispatcher, with its own objective.
type member struct {
	owner    frame.Owner
	metrics  *metrics.FunctionMetrics
	function atomic.Pointer[provider.Function]
	to       provider.PatientDispatcher
	gone     atomic.Bool
	// zero: it was scaled to zero, and no request has come since.
	zero atomic.Bool
	use  use
}

var _ provider.PatientDispatcher = (*member)(nil)

// Invoke implements [provider.Dispatcher].
func (m *member) Invoke(ctx context.Context, req *frame.Request) (*frame.Response, error) {
	return m.InvokePatiently(ctx, req, 0)
}

// InvokePatiently implements [provider.PatientDispatcher].
func (m *member) InvokePatiently(ctx context.Context, req *frame.Request, patience time.Duration) (*frame.Response, error) {
	return m.invoke(req, func() (*frame.Response, error) { return m.to.InvokePatiently(ctx, req, patience) })
}

// invoke counts a request for the member.
func (m *member) invoke(req *frame.Request, run func() (*frame.Response, error)) (*frame.Response, error) {
	if m.gone.Load() {
		m.metrics.AddDrop(metrics.Closed)
		return nil, dispatch.ErrClosed
	}
	if m.zero.Load() {
		m.zero.Store(false)
	}
	f := m.function.Load()
	if req.Objective == 0 {
		req.Objective = f.Inference.SLO
	}
	req.Owner = &m.owner
	resp, err := run()
	if err != nil {
		m.metrics.AddDrop(reasonOf(err))
		return nil, err
	}
	m.use.add(time.Now(), resp.Used)
	// The dispatcher's number is that of the pool.
	resp.Revision = f.Revision
	if resp.Header != nil {
		resp.Header[web.RevisionHeader] = []string{strconv.FormatUint(f.Revision, 10)}
	}
	return resp, nil
}

// reasonOf is the reason by which metrics count a request that the dispatcher answered itself, "" for none.
func reasonOf(err error) metrics.Reason {
	for _, x := range []struct {
		err    error
		reason metrics.Reason
	}{
		{dispatch.ErrLate, metrics.Late}, {dispatch.ErrQueueFull, metrics.QueueFull}, {dispatch.ErrInstanceLost, metrics.InstanceLost},
		{context.Canceled, metrics.Canceled}, {dispatch.ErrClosed, metrics.Closed},
	} {
		if errors.Is(err, x.err) {
			return x.reason
		}
	}
	var refused *web.Error
	if errors.As(err, &refused) && refused.Status == http.StatusServiceUnavailable { // Its text says why there is none.
		return metrics.NoInstance
	}
	return ""
}
