package pool

import (
	"context"
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
	// pool is the full name of its pool.
	pool string
	to   provider.PatientDispatcher
	gone atomic.Bool
	// zero: it was scaled to zero, and no request has come since.
	zero atomic.Bool
	// hopeless is why no request can be answered within its objective, nil if one can.
	hopeless atomic.Pointer[string]
	// use is its own, all that of the pool.
	use use
	all *use
}

var (
	_ provider.PatientDispatcher = (*member)(nil)
	_ provider.LoadDispatcher    = (*member)(nil)
)

// CountElsewhere implements [provider.LoadDispatcher]: the pool's capacity counts for the member's candidate, too.
func (m *member) CountElsewhere() {
	if to, ok := m.to.(provider.LoadDispatcher); ok && !m.gone.Load() {
		to.CountElsewhere()
	}
}

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
	if why := m.hopeless.Load(); why != nil {
		m.metrics.AddDrop(metrics.NoInstance)
		return nil, web.NewProblem(*why, true).Answer(dispatch.ErrCold)
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
		return nil, owned(err, m.pool, f)
	}
	now := time.Now()
	m.use.add(now, resp.Used)
	if !m.gone.Load() { // What it has used is taken off by then.
		m.all.add(now, resp.Used)
	}
	// The dispatcher's number is that of the pool.
	resp.Revision = f.Revision
	if resp.Header != nil {
		resp.Header[web.RevisionHeader] = []string{strconv.FormatUint(f.Revision, 10)}
	}
	return resp, nil
}

// part is the member's part of what its pool uses, from 0 to 1. n is the number of members.
func (m *member) part(now time.Time, n int) float64 {
	return part(m.use.lately(now), m.all.lately(now), n)
}
