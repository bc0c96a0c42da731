package peers

import (
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/command/load"
)

func TestRefusedEarly(t *testing.T) {
	const ms, slo = time.Millisecond, 400 * time.Millisecond
	good := func(at, done time.Duration) load.Observed {
		return load.Observed{At: at * ms, Latency: (done - at) * ms, Sent: true, Good: true, Status: http.StatusOK}
	}
	refused := func(at, done time.Duration) load.Observed {
		return load.Observed{At: at * ms, Latency: (done - at) * ms, Sent: true, Status: http.StatusServiceUnavailable}
	}
	first := good(0, 80) // Executions take 80 ms.
	for name, c := range map[string]struct {
		requests []load.Observed
		want     int
	}{
		"nothing":                          {nil, 0},
		"no answer says how long it takes": {[]load.Observed{refused(0, 1)}, 0},
		"the next answer is too late":      {[]load.Observed{first, good(70, 1330), refused(1000, 1310)}, 0},
		"the next answer is early enough":  {[]load.Observed{first, good(70, 1315), refused(1000, 1310)}, 1},
		"nothing executes":                 {[]load.Observed{first, refused(1000, 1310), good(1311, 1391)}, 1},
		"nothing executes, but it is late": {[]load.Observed{first, refused(1000, 1325), good(1391, 1471)}, 0},
		"only later ones are answered":     {[]load.Observed{first, refused(1000, 1001), good(1002, 1300)}, 1},
		"no answer at all":                 {[]load.Observed{first, {At: ms, Latency: ms, Sent: true}, {At: ms}}, 0},
	} {
		if got := refusedEarly(c.requests, slo, nil); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// A request takes the time of those of about its size.
func TestRefusedEarlyBySize(t *testing.T) {
	const ms = time.Millisecond
	var requests []load.Observed
	for i := range 60 { // Every third is long, and takes 300 ms.
		r := load.Observed{Index: i, At: time.Duration(i) * 1000 * ms, Latency: 50 * ms, Sent: true, Good: true, Status: http.StatusOK}
		if i%3 == 0 {
			r.Latency = 300 * ms
		}
		requests = append(requests, r)
	}
	for i := range 2 { // Refused after 200 ms.
		requests = append(requests, load.Observed{
			Index: 60 + i, At: time.Duration(60+i) * 1000 * ms, Latency: 200 * ms, Sent: true, Status: http.StatusServiceUnavailable,
		})
	}
	size := func(index int) int { return []int{100, 9, 10}[index%3] }
	if got := refusedEarly(requests, 400*ms, size); got != 1 {
		t.Errorf("%d could have been in time, want the short one", got)
	}
}

// At every rate a trial has enough requests.
func TestTrialsHaveEnoughRequests(t *testing.T) {
	for _, m := range subjects {
		s := &subject{Trials: Trials{SLO: m.slo, Trial: 1500 * time.Millisecond}}
		for _, rate := range []float64{0.5, 7.7, 40, 611, 8640} {
			times, err := load.Poisson.Times(rate, s.counted(rate), rand.New(rand.NewPCG(seed, 0)))
			if err != nil || len(times) < minRequests {
				t.Errorf("%s at %v/s: %d requests, %v", m.model, rate, len(times), err)
			}
		}
	}
}
