package coldstart

import (
	"time"
)

// HHP is the hybrid histogram policy of Shahrad et al., Serverless in the Wild
// (USENIX ATC 2020), §4.2, with which INFless compares (§3.5). All idle times
// of a function are counted in bins of a minute over four hours. The 5th
// percentile, rounded down, less 10 %, is the pre-warming window; until the
// 99th, rounded up, and 10 %, the instance is kept.
//
// Where most idle times are out of bounds, the next is forecast from the last
// ones, and the window is 15 % around it; the original takes ARIMA, this one
// the regression of an idle time on the one before. Where the histogram says
// too little, a function is kept for four hours.
type HHP struct {
	functions map[string]*hybrid
}

// hybrid is what HHP knows of one function.
type hybrid struct {
	Histogram
	recent Recent
	chosen Windows
}

// forecastMargin is how far before and after the forecast a function is kept.
const forecastMargin = 0.15

var _ Policy = (*HHP)(nil)

// NewHHP is a policy that knows no function yet.
func NewHHP() *HHP { return &HHP{functions: map[string]*hybrid{}} }

// Observe counts the idle time.
func (p *HHP) Observe(_ time.Time, function string, idle time.Duration) {
	h := p.functions[function]
	if h == nil {
		h = &hybrid{}
		p.functions[function] = h
	}
	h.observe(idle)
}

// Windows are those of the last idle time on.
func (p *HHP) Windows(_ time.Time, function string) Windows {
	if h := p.functions[function]; h != nil {
		return h.chosen
	}
	return Windows{KeepAlive: Range}
}

// Forget drops the histogram.
func (p *HHP) Forget(function string) { delete(p.functions, function) }

// Marshal is the bins that are not empty and the last idle times.
func (p *HHP) Marshal(function string) []byte {
	h := p.functions[function]
	if h == nil {
		return nil
	}
	w := newWireWriter(wireHHP, 1)
	h.marshal(w)
	return *w
}

// Restore takes up the histogram.
func (p *HHP) Restore(function string, state []byte) error {
	r, h := newWireReader(wireHHP, 1, state), &hybrid{}
	h.restore(r)
	if err := r.Done(); err != nil {
		return err
	}
	p.functions[function] = h
	return nil
}

func (h *hybrid) observe(idle time.Duration) {
	h.Add(idle)
	h.recent.Add(idle)
	h.chosen = h.choose()
}

func (h *hybrid) marshal(w *wireWriter) {
	h.Histogram.Marshal(w)
	w.Spans(h.recent)
}

func (h *hybrid) restore(r *wireReader) {
	h.Histogram.Restore(r)
	h.recent = r.Spans(MaxRecent)
	if len(h.recent) == 0 {
		r.Fail()
	}
	if !r.Failed() {
		h.chosen = h.choose()
	}
}

func (h *hybrid) choose() Windows {
	switch {
	case h.Outside > h.Inside:
		return around(h.recent.Forecast())
	case h.Representative():
		return between(h.Head(), h.Tail())
	default:
		return Windows{KeepAlive: Range}
	}
}

// between pre-warms at head and keeps until tail.
func between(head, tail time.Duration) Windows {
	return Windows{PreWarm: head, KeepAlive: max(0, tail-head)}
}

// around keeps a function while its next request is due.
func around(due time.Duration) Windows {
	return between(Scale(due, 1-forecastMargin), Scale(due, 1+forecastMargin))
}
