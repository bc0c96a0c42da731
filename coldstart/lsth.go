package coldstart

import (
	"time"
)

// DefaultGamma is INFless' γ.
const DefaultGamma = 0.5

// LSTH is INFless' long-short term histogram policy (§3.5). It has one histogram of
// the idle times of the last day and one of those of the last hour. It takes head and
// tail from each as HHP does, and weights them:
//
//	pre-warm   = γ·L_prewarm   + (1−γ)·S_prewarm
//	keep-alive = γ·L_keepalive + (1−γ)·S_keepalive
//
// The paper does not say what to do while a histogram is empty. Here the other one
// then decides alone. If both are empty, LSTH keeps a function for four hours. If most
// idle times are out of bounds, it forecasts the next one as HHP does.
type LSTH struct {
	gamma     float64
	functions map[string]*terms
}

// terms is LSTH's state of one function.
type terms struct {
	Trail
	recent Recent
	last   time.Time
	chosen Windows
	stale  bool
}

var _ Policy = (*LSTH)(nil)

// NewLSTH returns a policy that weighs the long term with gamma, in [0, 1].
func NewLSTH(gamma float64) *LSTH {
	return &LSTH{gamma: gamma, functions: map[string]*terms{}}
}

// Observe counts the idle time in both histograms.
func (p *LSTH) Observe(now time.Time, function string, idle time.Duration) {
	t := p.functions[function]
	if t == nil {
		t = &terms{}
		p.functions[function] = t
	}
	t.Add(now, idle)
	t.recent.Add(idle)
	t.stale = true
}

// Windows returns the windows of the histograms at the time last.
func (p *LSTH) Windows(last time.Time, function string) Windows {
	t := p.functions[function]
	if t == nil {
		return Windows{KeepAlive: Range}
	}
	if t.stale || !last.Equal(t.last) {
		t.Expire(last)
		t.chosen, t.last, t.stale = t.choose(p.gamma), last, false
	}
	return t.chosen
}

// Forget drops the histograms.
func (p *LSTH) Forget(function string) { delete(p.functions, function) }

// Marshal returns both histograms and the last idle times.
func (p *LSTH) Marshal(function string) []byte {
	t := p.functions[function]
	if t == nil {
		return nil
	}
	w := newWireWriter(wireLSTH, 1)
	t.Trail.Marshal(w)
	w.Spans(t.recent)
	return *w
}

// Restore restores both histograms and the last idle times.
func (p *LSTH) Restore(function string, state []byte) error {
	r := newWireReader(wireLSTH, 1, state)
	t := &terms{stale: true}
	t.Trail.Restore(r)
	t.recent = r.Spans(MaxRecent)
	if len(t.recent) == 0 {
		r.Fail()
	}
	if err := r.Done(); err != nil {
		return err
	}
	p.functions[function] = t
	return nil
}

func (t *terms) choose(gamma float64) Windows {
	switch {
	case t.Long.Outside > t.Long.Inside:
		return around(t.recent.Forecast())
	case t.Long.Inside == 0:
		return Windows{KeepAlive: Range}
	case t.Short.Inside == 0:
		gamma = 1
		fallthrough
	default:
		return t.weighted(gamma)
	}
}

// weighted returns the paper's weighted sum. It weights the keep-alive windows, not the
// tails, with the same result.
func (t *terms) weighted(gamma float64) Windows {
	long, short := between(t.Long.Head(), t.Long.Tail()), Windows{}
	if gamma < 1 {
		short = between(t.Short.Head(), t.Short.Tail())
	}
	return Windows{
		PreWarm:   Scale(long.PreWarm, gamma) + Scale(short.PreWarm, 1-gamma),
		KeepAlive: Scale(long.KeepAlive, gamma) + Scale(short.KeepAlive, 1-gamma),
	}
}
