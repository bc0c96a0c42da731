package load

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
	"unique"
)

// job is one request and its intended time of sending.
type job struct {
	index    int
	intended time.Time
}

// outcome is the result of a request.
type outcome uint8

const (
	unsent  outcome = iota // dropped: too many were in flight
	failed                 // no answer came
	refused                // answered, but not with a 2xx status
	wrong                  // answered, but Verify returned an error
	good
)

// sample is the record of one request.
type sample struct {
	outcome outcome
	status  int
	// latency is from the intended time of sending to the whole answer, lag
	// from the intended time until the generator began to send.
	latency, lag time.Duration
	err          error
	// reason is the beginning of what a refused request was answered.
	reason unique.Handle[string]
}

// maxReason is the size of a reason in bytes.
const maxReason = 160

// within reports whether the request was answered well within its target's SLO.
func (s *sample) within(t *Target) bool {
	return s.outcome == good && (t.SLO <= 0 || s.latency <= t.SLO)
}

// missed counts the requests that were not. max is how many may be.
type missed struct {
	count atomic.Int64
	max   int64
}

func (m *missed) tooMany() bool { return m.count.Load() > m.max }

// pool holds a target's connections. Each has a goroutine that runs one request at a
// time. A request takes the most recently used idle connection, or a new one.
type pool struct {
	target   *Target
	endpoint *endpoint
	timeout  time.Duration
	samples  []sample
	flight   chan struct{} // one token per request in flight, over all pools
	missed   *missed       // of all pools

	ctx     context.Context
	workers sync.WaitGroup

	mu      sync.Mutex
	idle    []*worker
	closing bool // no more requests are coming
}

type worker struct {
	conn carrier
	jobs chan job
}

func newPool(ctx context.Context, t *Target, requests int, timeout time.Duration, flight chan struct{}) (*pool, error) {
	e, err := t.resolve()
	if err != nil {
		return nil, err
	}
	return &pool{
		target: t, endpoint: e, timeout: timeout,
		samples: make([]sample, requests),
		flight:  flight,
		ctx:     ctx,
	}, nil
}

// start sends a request without waiting. If too many are in flight, it drops the
// request.
func (p *pool) start(j job) {
	select {
	case p.flight <- struct{}{}:
	default:
		p.missed.count.Add(1)
		return // The sample stays unsent.
	}
	p.mu.Lock()
	var w *worker
	if n := len(p.idle); n > 0 {
		w, p.idle = p.idle[n-1], p.idle[:n-1]
	}
	p.mu.Unlock()
	if w == nil {
		w = &worker{jobs: make(chan job, 1)}
		w.conn = p.endpoint.connect(p.target.Verify != nil)
		p.workers.Go(func() { p.work(w) })
	}
	w.jobs <- j
}

func (p *pool) work(w *worker) {
	defer w.conn.close()
	for j := range w.jobs {
		s := p.one(w.conn, j)
		if !s.within(p.target) {
			p.missed.count.Add(1)
		}
		p.samples[j.index] = s
		<-p.flight
		if !p.rest(w) {
			return
		}
	}
}

// rest makes a worker idle; false if no more requests are coming.
func (p *pool) rest(w *worker) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing {
		return false
	}
	p.idle = append(p.idle, w)
	return true
}

func (p *pool) one(c carrier, j job) sample {
	var body []byte
	if p.target.Body != nil {
		body = p.target.Body(j.index)
	}
	header := p.target.lines(j.index)
	lag := time.Since(j.intended)
	status, answer, err := c.do(p.ctx, header, body, j.intended.Add(p.timeout))
	latency := time.Since(j.intended)
	s := judge(p.target, j.index, status, answer, err)
	s.lag, s.latency = lag, latency
	return s
}

// judge returns the outcome of an answer.
func judge(t *Target, index, status int, answer []byte, err error) sample {
	switch {
	case err != nil:
		return sample{outcome: failed, err: err}
	case status < 200 || status > 299:
		return sample{outcome: refused, status: status, reason: unique.Make(string(answer[:min(len(answer), maxReason)]))}
	case t.Verify != nil:
		if err := t.Verify(index, answer); err != nil {
			return sample{outcome: wrong, status: status, err: err}
		}
	}
	return sample{outcome: good, status: status}
}

// finish waits for the outstanding answers and closes all connections.
func (p *pool) finish() {
	p.mu.Lock()
	p.closing = true
	for _, w := range p.idle {
		close(w.jobs)
	}
	p.idle = nil
	p.mu.Unlock()
	p.workers.Wait()
}
