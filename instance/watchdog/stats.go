package watchdog

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// stats holds the counters of /_/metrics.
type stats struct {
	requests    atomic.Uint64
	nanoseconds atomic.Uint64
}

func (s *stats) count(took time.Duration) {
	s.requests.Add(1)
	s.nanoseconds.Add(uint64(took))
}

// write writes the metrics in Prometheus's text format.
func (s *stats) write(w io.Writer, inflight int64) {
	requests := s.requests.Load()
	_, _ = fmt.Fprintf(w, `# HELP http_requests_total Requests answered.
# TYPE http_requests_total counter
http_requests_total %d
# HELP http_requests_in_flight Requests in flight.
# TYPE http_requests_in_flight gauge
http_requests_in_flight %d
# HELP http_request_duration_seconds Time of requests.
# TYPE http_request_duration_seconds summary
http_request_duration_seconds_sum %g
http_request_duration_seconds_count %d
`, requests, inflight, time.Duration(s.nanoseconds.Load()).Seconds(), requests)
}
