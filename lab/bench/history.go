package bench

import (
	"fmt"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/rig"
)

const (
	// well is the share of a function's requests that must be answered within the
	// objective in a good second.
	well = 0.95
	// steady is the number of successive good seconds of all functions that count as
	// recovered. One good second may be chance.
	steady = 5
)

// history has the observed requests of every function, by intended time.
type history struct {
	slo      time.Duration
	requests [][]load.Observed
}

func newHistory(functions int, slo time.Duration) *history {
	return &history{slo: slo, requests: make([][]load.Observed, functions)}
}

func (h *history) observe(o load.Observed) { h.requests[o.Target] = append(h.requests[o.Target], o) }

// window sums up the requests of a period.
type window struct {
	requests, answered, within int
	// p99 is that of the answered requests, by nearest rank.
	p99 time.Duration
}

// share returns part divided by the requests, 1 if there are none.
func (w window) share(part int) float64 {
	if w.requests == 0 {
		return 1
	}
	return float64(part) / float64(w.requests)
}

// window sums up a function's requests due in [from, until).
func (h *history) window(function int, from, until time.Duration) window {
	all := h.requests[function]
	begin, _ := slices.BinarySearchFunc(all, from, func(o load.Observed, at time.Duration) int { return int(o.At - at) })
	var w window
	var latencies []time.Duration
	for _, o := range all[begin:] {
		if o.At >= until {
			break
		}
		w.requests++
		if !o.Good {
			continue
		}
		w.answered++
		latencies = append(latencies, o.Latency)
		if o.Latency <= h.slo {
			w.within++
		}
	}
	if n := len(latencies); n > 0 {
		slices.Sort(latencies)
		w.p99 = latencies[(n*99+99)/100-1]
	}
	return w
}

// well reports whether the second that begins at from is good for all functions.
func (h *history) well(from time.Duration) bool {
	for f := range h.requests {
		if w := h.window(f, from, from+time.Second); w.share(w.within) < well {
			return false
		}
	}
	return true
}

// recovered returns the whole seconds from after until the first good second of steady
// successive ones. ok is false if there are none until end.
func (h *history) recovered(after, end time.Duration) (time.Duration, bool) {
	row := 0
	for from := after; from+time.Second <= end; from += time.Second {
		if row++; !h.well(from) {
			row = 0
		}
		if row == steady {
			return from - (steady-1)*time.Second - after, true
		}
	}
	return 0, false
}

// add adds the windows of all phases, function by function, and the recovery time. That
// counts from ended, when the loops had stopped.
func (b Recovery) add(r *report.Report, h *history, ended time.Duration) {
	end := b.Before + b.Busy + b.After
	for f, name := range models {
		from := time.Duration(0)
		for _, phase := range []struct {
			name  string
			until time.Duration
		}{{"before", b.Before}, {fmt.Sprintf("%d loops", b.Loops), b.Before + b.Busy}, {"after", end}} {
			for from < phase.until {
				until := min(from+b.Window, phase.until)
				w := h.window(f, from, until)
				at := fmt.Sprintf("%s.from_%ds.", name, from/time.Second)
				r.Add(at+"answered.share", w.share(w.answered), "", phase.name)
				r.Add(at+"within_slo.share", w.share(w.within), "", phase.name)
				r.Add(at+"latency.p99_ms", rig.Milliseconds(w.p99), "ms", phase.name+", of what was answered")
				from = until
			}
		}
	}
	took, ok := h.recovered(ended, end)
	count, note := 1.0, fmt.Sprintf("from the end of the loops until all functions answer %g %% within %v, for %d s on end", 100*well, b.SLO, steady)
	if !ok {
		took, count, note = max(0, end-ended), 0, "not recovered: it lasts longer than this"
	}
	if _, fine := h.recovered(max(0, b.Before-steady*time.Second), b.Before); !fine && b.Before >= steady*time.Second {
		note += "; they did not do well before the loops either, so that this says little"
	}
	r.Add("recovered", count, "", "1 if the functions did well again before the end, else 0")
	r.Add("recovery.s", took.Seconds(), "s", note)
}
