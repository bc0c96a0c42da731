package load

import (
	"fmt"
	"maps"
	"slices"
	"time"
	"unique"

	"github.com/faas-infer/faas-infer/command/report"
)

// LateLag is the lag above which a request counts as sent late.
const LateLag = time.Millisecond

// Result holds the results of a run.
type Result struct {
	// Began is the start, from which intended times count.
	Began time.Time
	// Elapsed is from the start to the last answer, at least the duration.
	Elapsed time.Duration
	// Targets are in the order of the options'.
	Targets []TargetResult
}

// TargetResult holds a run's results for one target. Every request counts in
// exactly one of Good, Refused, Wrong, Failed and Dropped.
type TargetResult struct {
	Name string
	SLO  time.Duration
	// Requests is the number of scheduled requests.
	Requests int
	// Good requests were answered with a 2xx status and passed Verify. Refused
	// ones got another status, Wrong ones did not pass Verify, Failed ones got no
	// answer. Dropped ones were not sent because too many were in flight.
	Good, Refused, Wrong, Failed, Dropped int
	// Codes counts answers by HTTP status.
	Codes map[int]int
	// Reasons counts refused answers by the first 160 bytes of what they said.
	Reasons map[string]int
	// FirstError is the first error of a Failed or Wrong request.
	FirstError error
	// Offered is the intended rate, Achieved the rate of good answers over the
	// elapsed time, in requests/s.
	Offered, Achieved float64
	// Latency covers good answers, from the intended time of sending.
	Latency Quantiles
	// WithinSLO is the share of all requests, including dropped ones, that got a
	// good answer within the SLO.
	WithinSLO float64
	// Lag is how long after its intended time the generator began to send a
	// request. It is part of the latency. Late counts the requests whose lag
	// exceeded LateLag.
	Lag  Quantiles
	Late int
}

// Quantiles are exact: each is one of the samples (nearest rank).
type Quantiles struct {
	Mean, P50, P95, P99, Max time.Duration
}

// Lagged reports whether the generator could not keep its own schedule: it sent more
// than 1 % of the requests late. The latencies then say more about the generator and
// the machine's load than about the target.
func (r *TargetResult) Lagged() bool {
	return r.Late*100 > r.Requests-r.Dropped
}

// quantiles returns the quantiles of ds, which it sorts.
func quantiles(ds []time.Duration) Quantiles {
	if len(ds) == 0 {
		return Quantiles{}
	}
	slices.Sort(ds)
	var sum time.Duration
	for _, d := range ds {
		sum += d
	}
	rank := func(percent int) time.Duration { return ds[(len(ds)*percent+99)/100-1] }
	return Quantiles{
		Mean: sum / time.Duration(len(ds)),
		P50:  rank(50), P95: rank(95), P99: rank(99), Max: ds[len(ds)-1],
	}
}

// summarise adds up the samples of one target.
func summarise(t *Target, samples []sample, offered float64, elapsed time.Duration) TargetResult {
	r := TargetResult{
		Name: t.Name, SLO: t.SLO, Requests: len(samples),
		Codes: make(map[int]int), Reasons: map[string]int{}, Offered: offered,
	}
	latencies := make([]time.Duration, 0, len(samples))
	lags := make([]time.Duration, 0, len(samples))
	within := 0
	for i := range samples {
		s := &samples[i]
		r.count(s)
		if s.outcome == unsent {
			continue
		}
		lags = append(lags, s.lag)
		if s.lag > LateLag {
			r.Late++
		}
		if s.outcome == good {
			latencies = append(latencies, s.latency)
		}
		if s.within(t) {
			within++
		}
	}
	r.Achieved = float64(r.Good) / elapsed.Seconds()
	r.Latency, r.Lag = quantiles(latencies), quantiles(lags)
	if r.Requests > 0 {
		r.WithinSLO = float64(within) / float64(r.Requests)
	}
	return r
}

func (r *TargetResult) count(s *sample) {
	if s.status != 0 {
		r.Codes[s.status]++
	}
	if s.err != nil && r.FirstError == nil {
		r.FirstError = s.err
	}
	switch s.outcome {
	case unsent:
		r.Dropped++
	case failed:
		r.Failed++
	case refused:
		if s.reason != (unique.Handle[string]{}) {
			r.Reasons[s.reason.Value()]++
		}
		r.Refused++
	case wrong:
		r.Wrong++
	case good:
		r.Good++
	}
}

// AddTo adds the figures to a report, with prefix ("mnist." or "") before each name:
// offered.rps, achieved.rps, latency.p99_ms, within_slo.share and others.
func (r *TargetResult) AddTo(rep *report.Report, prefix string) {
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	add := func(name string, value float64, unit, note string) { rep.Add(prefix+name, value, unit, note) }
	add("offered.rps", r.Offered, "1/s", "")
	add("achieved.rps", r.Achieved, "1/s", "answered well, over the time until the last answer")
	add("latency.p50_ms", ms(r.Latency.P50), "ms", "of good answers, from the intended time of sending")
	add("latency.p95_ms", ms(r.Latency.P95), "ms", "")
	add("latency.p99_ms", ms(r.Latency.P99), "ms", "")
	add("latency.max_ms", ms(r.Latency.Max), "ms", "")
	if r.SLO > 0 {
		add("within_slo.share", r.WithinSLO, "", fmt.Sprintf("of all requests, also those refused, failed or not sent; SLO %v", r.SLO))
	}
	add("requests.sent", float64(r.Requests-r.Dropped), "", "")
	add("requests.good", float64(r.Good), "", "")
	r.addFaults(add)
	note := ""
	if r.Lagged() {
		note = "the generator could not keep its schedule: do not trust the latencies"
	}
	add("send_lag.p99_ms", ms(r.Lag.P99), "ms", note)
	add("send_lag.late", float64(r.Late), "", fmt.Sprintf("sent more than %v late", LateLag))
}

func (r *TargetResult) addFaults(add func(name string, value float64, unit, note string)) {
	note := ""
	if r.FirstError != nil {
		note = r.FirstError.Error()
	}
	add("requests.refused", float64(r.Refused), "", "answered, not with a 2xx status")
	add("requests.wrong", float64(r.Wrong), "", "answered, not as is due")
	add("requests.failed", float64(r.Failed), "", note)
	add("requests.dropped", float64(r.Dropped), "", "not sent: too many were in flight")
	for _, code := range slices.Sorted(maps.Keys(r.Codes)) {
		add(fmt.Sprintf("status.%d", code), float64(r.Codes[code]), "", "")
	}
}
