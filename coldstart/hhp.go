package coldstart

import (
	"time"
)

// HHP is the hybrid histogram policy of Shahrad et al., Serverless in the Wild
// (USENIX ATC 2020), §4.2, with which INFless compares (§3.5). It counts all idle
// times of a function in bins of a minute over four hours. The pre-warming window is
// the 5th percentile, rounded down, less 10 %. The instance is kept until the 99th
// percentile, rounded up, plus 10 %.
//
// If most idle times are out of bounds, HHP forecasts the next from the last ones, and
// the window is 15 % around it. The original uses ARIMA; this one uses the regression
// of an idle time on the one before. If the histogram says too little, HHP keeps the
// function for four hours.
//
// HHP never forgets, as Shahrad et al. have it. INFless describes HHP with a histogram of
// the last hours instead (§3.5): see [NewHHPWindow].
type HHP struct {
	functions map[string]*hybrid
}

// hybrid is HHP's state of one function.
type hybrid struct {
	Histogram
	recent Recent
	chosen Windows
}

// forecastMargin is how far before and after the forecast HHP keeps a function, as a
// part of the forecast.
const forecastMargin = 0.15

var _ Policy = (*HHP)(nil)

// newHHP returns a policy without functions.
func newHHP() *HHP { return &HHP{functions: map[string]*hybrid{}} }

// Observe counts the idle time.
func (p *HHP) Observe(_ time.Time, function string, idle time.Duration) {
	h := p.functions[function]
	if h == nil {
		h = &hybrid{}
		p.functions[function] = h
	}
	h.observe(idle)
}

// Windows returns the windows chosen after the last idle time.
func (p *HHP) Windows(_ time.Time, function string) Windows {
	if h := p.functions[function]; h != nil {
		return h.chosen
	}
	return Windows{KeepAlive: Range}
}

// Forget drops the histogram.
func (p *HHP) Forget(function string) { delete(p.functions, function) }

// Marshal returns the bins that are not empty and the last idle times.
func (p *HHP) Marshal(function string) []byte {
	h := p.functions[function]
	if h == nil {
		return nil
	}
	w := newWireWriter(wireHHP, 1)
	h.marshal(w)
	return *w
}

// Restore restores the histogram and the last idle times.
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
	h.chosen = h.windows(h.recent)
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
		h.chosen = h.windows(h.recent)
	}
}

// windows returns the windows that a histogram gives by HHP's rules. recent has the last
// idle times; they must not be empty if the histogram is not.
func (h *Histogram) windows(recent Recent) Windows {
	switch {
	case h.Outside > h.Inside:
		return around(recent.Forecast())
	case h.Representative():
		return between(h.Head(), h.Tail())
	default:
		return Windows{KeepAlive: Range}
	}
}

// between returns windows that pre-warm at head and keep until tail.
func between(head, tail time.Duration) Windows {
	return Windows{PreWarm: head, KeepAlive: max(0, tail-head)}
}

// around returns windows that keep a function around the time its next request is due.
func around(due time.Duration) Windows {
	return between(Scale(due, 1-forecastMargin), Scale(due, 1+forecastMargin))
}
