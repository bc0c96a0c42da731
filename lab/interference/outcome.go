package interference

import (
	"fmt"
	"time"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/command/report"
)

// outcome is what one trial showed.
type outcome struct {
	slo time.Duration
	// from is when the interference began, from the first request, and lasts how long it
	// lasted. early: the instance was interfered with before.
	from, lasts time.Duration
	early       bool
	// detected is when the state was Interfered, after from; 0 if it never was.
	detected time.Duration
	// late is how late the generator sent requests, at the 99th percentile.
	late     time.Duration
	requests []load.Observed
}

// well reports whether a request was answered within the objective.
func (o *outcome) well(r load.Observed) bool { return r.Good && r.Latency <= o.slo }

// within returns the share of the requests due from a time until another that were answered
// within the objective, 1 if there were none.
func (o *outcome) within(from, until time.Duration) float64 {
	n, well := 0, 0
	for _, r := range o.requests {
		if r.At >= from && r.At < until {
			if n++; o.well(r) {
				well++
			}
		}
	}
	if n == 0 {
		return 1
	}
	return float64(well) / float64(n)
}

// Requests are well again from when on as many are within the objective as before, in the next
// window and until the end of the interference. step is the resolution.
const window, step = 2 * time.Second, 100 * time.Millisecond

// recovered returns how long after the beginning of the interference the requests were as often
// within the objective as before; false if they were not until its end.
func (o *outcome) recovered() (time.Duration, bool) {
	before := o.within(0, o.from)
	for at := time.Duration(0); at+window <= o.lasts; at += step {
		if min(o.within(o.from+at, o.from+at+window), o.within(o.from+at, o.from+o.lasts)) >= before {
			return at, true
		}
	}
	return 0, false
}

// lost counts the requests without an answer.
func (o *outcome) lost() (n int) {
	for _, r := range o.requests {
		if !r.Sent || r.Status == 0 {
			n++
		}
	}
	return n
}

// add adds the figures of a trial to a report.
func (o *outcome) add(r *report.Report, t trial) {
	detected, note := o.detected, "until the variant's state is interfered; INFaaS: 30 s and more (§6.3)"
	if detected == 0 {
		detected, note = o.lasts, "not detected while it lasted"
	}
	if o.early {
		note += "; the instance was interfered with before: the machine is busy"
	}
	r.Add(t.name+".detect_s", detected.Seconds(), "s", note)
	recovered, ok := o.recovered()
	note = fmt.Sprintf("until as many requests are within %v as before", o.slo)
	if !ok {
		recovered, note = o.lasts, "not while it lasted"
	}
	r.Add(t.name+".recover_s", recovered.Seconds(), "s", note)
	r.Add(t.name+".lost", float64(o.lost()), "", "requests without an answer")
	r.Add(t.name+".within_slo_before", o.within(0, o.from), "", t.note)
	r.Add(t.name+".within_slo_during", o.within(o.from, o.from+o.lasts), "", "")
	r.Add(t.name+".within_slo_after", o.within(o.from+o.lasts+window, time.Hour), "", "")
	r.Add(t.name+".send_lag_p99_ms", float64(o.late)/float64(time.Millisecond), "ms", "how late the generator sent requests")
}
