package coldstart

import (
	"time"
)

// DefaultGamma is INFless' γ.
const DefaultGamma = 0.5

// LSTH is INFless' long-short term histogram policy (§3.5). It has one histogram of
// the idle times of the last day and one of those of the last hour. Each gives windows
// as HHP's does, and LSTH weights them:
//
//	pre-warm   = γ·L_prewarm   + (1−γ)·S_prewarm
//	keep-alive = γ·L_keepalive + (1−γ)·S_keepalive
//
// "Like HHP" (§3.5) includes HHP's test of representativeness: the windows of a histogram
// with few idle times, or of one in which no length stands out, are the standard keep-alive
// of four hours. If most idle times of a term are out of bounds, its windows are those
// around a forecast.
type LSTH struct {
	gamma float64
	// wire is the first byte of its states. long is the long term.
	wire      byte
	long      time.Duration
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
	return &LSTH{gamma: gamma, wire: wireLSTH, long: LongTerm, functions: map[string]*terms{}}
}

// HHPWindow is the span of the histogram of [NewHHPWindow]: INFless' example (§3.5).
const HHPWindow = 4 * time.Hour

// NewHHPWindow returns HHP as INFless describes it (§3.5): it knows the idle times of the
// last four hours only. That is LSTH without its short term.
func NewHHPWindow() *LSTH {
	return &LSTH{gamma: 1, wire: wireHHPWindow, long: HHPWindow, functions: map[string]*terms{}}
}

// Observe counts the idle time in both histograms.
func (p *LSTH) Observe(now time.Time, function string, idle time.Duration) {
	t := p.functions[function]
	if t == nil {
		t = &terms{Trail: Trail{long: p.long}}
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
	w := newWireWriter(p.wire, 1)
	t.Trail.Marshal(w)
	w.Spans(t.recent)
	return *w
}

// Restore restores both histograms and the last idle times.
func (p *LSTH) Restore(function string, state []byte) error {
	r := newWireReader(p.wire, 1, state)
	t := &terms{Trail: Trail{long: p.long}, stale: true}
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

// choose returns the paper's weighted sum. It weights the keep-alive windows, not the
// tails, with the same result.
func (t *terms) choose(gamma float64) Windows {
	long, short := t.Long.windows(t.recent), t.Short.windows(t.recent)
	return Windows{
		PreWarm:   Scale(long.PreWarm, gamma) + Scale(short.PreWarm, 1-gamma),
		KeepAlive: Scale(long.KeepAlive, gamma) + Scale(short.KeepAlive, 1-gamma),
	}
}
