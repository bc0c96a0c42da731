package precision

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/command/report"
)

// around is the time before and after a change in which requests count.
const around = 10 * time.Second

// trial is what one change up and down showed.
type trial struct {
	way string
	slo time.Duration
	// before, during and after are the instances by variant before the change up, before that
	// down, and at the end.
	before, during, after map[string]int
	// lag is how late the generator sent requests, at the 99th percentile.
	lag      time.Duration
	requests []load.Observed
}

// switched reports whether fp32 had to take over: int8 alone served before, and fp32 after.
func (t *trial) switched() bool {
	return t.before[original] == 0 && t.before[quantised] > 0 && t.during[original] > 0
}

// String is the trial in one line.
func (t *trial) String() string {
	return fmt.Sprintf("%s: instances %v, then %v, then %v; late up %v, down %v, later %v; send lag %v", t.way, t.before, t.during, t.after,
		t.within(up-around, up+around), t.within(down-around, down+around), t.within(down+around, time.Hour), t.lag)
}

// tally counts requests. Late ones have no good answer within the objective. Of these, refused ones
// were told to come again, and lost ones have no good answer at all.
type tally struct{ requests, late, refused, lost int }

// within counts the requests due from a time until another.
func (t *trial) within(from, until time.Duration) (n tally) {
	for _, r := range t.requests {
		if r.At < from || r.At >= until {
			continue
		}
		n.requests++
		if !r.Good || r.Latency > t.slo {
			n.late++
		}
		switch {
		case r.Good:
		case r.Status == http.StatusServiceUnavailable || r.Status == http.StatusTooManyRequests:
			n.refused++
		default:
			n.lost++
		}
	}
	return n
}

func (n tally) plus(m tally) tally {
	return tally{n.requests + m.requests, n.late + m.late, n.refused + m.refused, n.lost + m.lost}
}

// percent is the share of late requests, 0 if there are none.
func (n tally) percent() float64 { return 100 * float64(n.late) / float64(max(1, n.requests)) }

// String is the numbers in words.
func (n tally) String() string {
	return fmt.Sprintf("%d of %d, %d of them refused", n.late, n.requests, n.refused)
}

// when lists the seconds with late requests, from the change up: how many were answered with which
// status.
func (t *trial) when() string {
	type moment struct{ second, status int }
	count := map[moment]int{}
	for _, r := range t.requests {
		if r.At >= up-around && (!r.Good || r.Latency > t.slo) {
			count[moment{int(math.Floor((r.At - up).Seconds())), r.Status}]++
		}
	}
	var text []string
	for _, m := range slices.SortedFunc(maps.Keys(count), func(a, b moment) int { return cmp.Or(a.second-b.second, a.status-b.status) }) {
		text = append(text, fmt.Sprintf("%d s: %d × %d", m.second, count[m], m.status))
	}
	return strings.Join(text, ", ")
}

// addTrials adds the figures of all trials.
func addTrials(r *report.Report, all []trial) {
	var total, later tally
	var lag time.Duration
	switched := 0
	for i := range all {
		later = later.plus(all[i].within(down+around, time.Hour))
		lag = max(lag, all[i].lag)
		if all[i].switched() {
			switched++
		}
	}
	for _, way := range []string{byFloor, byHeader} {
		for _, c := range []struct {
			name string
			at   time.Duration
		}{{"up", up}, {"down", down}} {
			var n tally
			for i := range all {
				if all[i].way == way {
					n = n.plus(all[i].within(c.at-around, c.at+around))
				}
			}
			total = total.plus(n)
			r.Add("switch."+way+"."+c.name+".late_pct", n.percent(), "%", n.String())
		}
	}
	r.Add("switch.late_pct", total.percent(), "%", fmt.Sprintf("%v, in %v around the changes; to reach: at most 1", total, 2*around))
	r.Add("switch.refused", float64(total.refused), "", "of the late ones; with 503 and Retry-After, because they would have been late")
	r.Add("switch.lost", float64(total.lost+later.lost), "", "without a good answer, and not refused; to reach: 0")
	r.Add("switch.later.late_pct", later.percent(), "%", fmt.Sprintf("%v, from %v after the change down", later, around))
	r.Add("switch.switched", float64(switched), "", fmt.Sprintf("of %d times int8 alone served before, and fp32 after", len(all)))
	r.Add("switch.send_lag_p99_ms", float64(lag)/float64(time.Millisecond), "ms", "how late the generator sent requests")
}
