package metrics

import (
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/faas-infer/faas-infer/provider/web"
)

// Reading is what a function has counted since the provider started. Its slices have a place for each bucket of
// [LatencyBounds] and [BatchBounds], and one for what is above.
type Reading struct {
	// Started counts the requests taken, Answered those with an answer.
	Started, Answered uint64
	// InTime, Late, Refused and Failed are the requests that count for the objective, as in slo_requests_total. Of a
	// function without objective, InTime are all answers that are none of the others and no 499. Wrong are those that
	// the client has to change (4xx), and WrongCode is their status, 0 if there were several or none.
	InTime, Late, Refused, Failed, Wrong uint64
	WrongCode                            int
	Latency, Batches                     []uint64
}

// LatencyBounds are the upper bounds of the histogram of requests, in milliseconds.
func LatencyBounds() []float64 {
	out := slices.Clone(requestBuckets)
	for i := range out {
		out[i] *= 1000
	}
	return out
}

// BatchBounds are the upper bounds of the histogram of batches, in requests.
func BatchBounds() []float64 { return slices.Clone(batchBuckets) }

// Quiet reports whether nothing has come to f since r was read and nothing is in flight. It allocates nothing.
func (r *Reading) Quiet(f *FunctionMetrics) bool {
	return f.Answered() == r.Answered && f.started.Load() == r.Started && r.Started == r.Answered
}

// Read reads the counters of f. objective says that the function has one. It takes no lock that a request takes.
func (r *Reading) Read(f *FunctionMetrics, objective bool) {
	// A request counts in codes first. Read in the opposite order, the misses never exceed what codes says of them.
	misses, asked := valueOf(f.misses), valueOf(f.asked)
	var hungUp uint64
	codes := 0
	r.Answered, r.Refused, r.Failed, r.Wrong, r.WrongCode = 0, 0, 0, 0, 0
	for code, n := range *f.codes.Load() {
		count := n.Load()
		r.Answered += count
		switch {
		case code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable:
			r.Refused += count
		case code >= http.StatusInternalServerError:
			r.Failed += count
		case code == web.StatusHungUp:
			hungUp += count
		case code >= http.StatusBadRequest && count > 0:
			r.Wrong, r.WrongCode, codes = r.Wrong+count, code, codes+1
		}
	}
	if codes > 1 {
		r.WrongCode = 0
	}
	r.Started = f.started.Load()
	bad := r.Refused + r.Failed
	if objective {
		r.InTime, r.Late = asked-min(asked, misses), misses-min(misses, bad)
	} else {
		r.InTime, r.Late = r.Answered-min(r.Answered, bad+hungUp+r.Wrong), 0
	}
	r.Latency = f.total.buckets(r.Latency[:0], len(requestBuckets))
	r.Batches = f.batch.buckets(r.Batches[:0], len(batchBuckets))
}

func valueOf(c prometheus.Counter) uint64 {
	var out dto.Metric
	if err := c.Write(&out); err != nil {
		return 0
	}
	return uint64(out.GetCounter().GetValue())
}

// buckets appends the counts of a histogram with n bounds, not summed up.
func (l *late) buckets(to []uint64, n int) []uint64 {
	h := l.read()
	if h == nil {
		return append(to, make([]uint64, n+1)...)
	}
	before := uint64(0)
	for _, b := range h.GetBucket() {
		if len(to) == n {
			break // That of infinity is the rest.
		}
		to = append(to, b.GetCumulativeCount()-before)
		before = b.GetCumulativeCount()
	}
	return append(to, h.GetSampleCount()-before)
}
