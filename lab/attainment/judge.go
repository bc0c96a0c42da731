package attainment

import (
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/command/load"
)

// well is the part of a second's requests that must be answered within their objectives. A
// second with less counts as bad.
const well = 0.97

// outcome sums up the answers to a scenario's requests.
type outcome struct {
	// requests is the number of requests that count, within the number of those that
	// were answered within their objectives.
	requests, within int
	// seconds is the time in which requests count.
	seconds float64
	// settle is the longest time from a change to the end of a bad second, 0 if there
	// is no bad second.
	settle time.Duration
	// cores is the mean number of cores that the instances held, used that of those that they kept busy.
	cores, used float64
	// median is that of the latencies of all answers that count.
	median time.Duration
	// bySecond is the part of each second's requests that was in time, in %.
	bySecond []int
}

// share returns the part of the counted requests that was in time, 1 if there are none.
func (o outcome) share() float64 {
	if o.requests == 0 {
		return 1
	}
	return float64(o.within) / float64(o.requests)
}

// goodput returns the answers within the objective, in requests/s.
func (o outcome) goodput() float64 {
	if o.seconds <= 0 {
		return 0
	}
	return float64(o.within) / o.seconds
}

// judge sums up the observed answers of functions with the objectives slo.
func judge(s Scenario, slo []time.Duration, seen []load.Observed) outcome {
	var o outcome
	seconds := int(s.Length / time.Second)
	due, kept := make([]int, seconds+1), make([]int, seconds+1)
	var latencies []time.Duration
	for _, r := range seen {
		second := min(int(r.At/time.Second), seconds)
		in := r.Good && r.Latency <= slo[r.Target]
		due[second]++
		if in {
			kept[second]++
		}
		if s.counts(r.At) {
			o.requests++
			if r.Good {
				latencies = append(latencies, r.Latency)
			}
			if in {
				o.within++
			}
		}
	}
	slices.Sort(latencies)
	if len(latencies) > 0 {
		o.median = latencies[len(latencies)/2]
	}
	for at := time.Duration(0); at < s.Length; at += 100 * time.Millisecond {
		if s.counts(at) {
			o.seconds += 0.1
		}
	}
	for second := range seconds {
		o.bySecond = append(o.bySecond, 100)
		if due[second] > 0 {
			o.bySecond[second] = 100 * kept[second] / due[second]
		}
		if float64(kept[second]) < well*float64(due[second]) {
			end := time.Duration(second+1) * time.Second
			o.settle = max(o.settle, end-lastChange(s, end-time.Second))
		}
	}
	return o
}

// lastChange returns the time of the latest change or burst until a time.
func lastChange(s Scenario, at time.Duration) time.Duration {
	var last time.Duration
	for _, c := range slices.Concat(s.Changes, s.Bursts) {
		if c <= at {
			last = max(last, c)
		}
	}
	return last
}

// setting is a fixed setting of a function: count instances, each with cpu millicores.
type setting struct{ cpu, count int }

// millicores returns the sum of the settings' shares.
func millicores(of []setting) (sum int) {
	for _, s := range of {
		sum += s.cpu * s.count
	}
	return sum
}

// settings lists the fixed settings to try for a scenario, those with more cores first, and
// fewer instances first. One function has up to the whole core; a long scenario tries only
// two settings. Several functions have equal shares, or one of them has a larger one.
func settings(s Scenario) [][]setting {
	functions := len(s.Functions)
	if functions == 1 {
		if s.Length >= time.Minute {
			return [][]setting{{{1000, 1}}, {{500, 1}}}
		}
		return [][]setting{{{1000, 1}}, {{500, 2}}, {{250, 4}}, {{750, 1}}, {{500, 1}}, {{250, 1}}}
	}
	var all [][]setting
	for larger := range functions {
		one := slices.Repeat([]setting{{250, 1}}, functions)
		one[larger].cpu = 500
		if millicores(one) <= 1000 {
			all = append(all, one)
		}
	}
	return append(all, slices.Repeat([]setting{{250, 1}}, functions))
}

// best is the result of the search over fixed settings.
type best struct {
	// goodput is the highest of all settings, fastest the settings that had it.
	goodput float64
	// leanest has the fewest cores of those with nearly the highest goodput.
	fastest, leanest []setting
}

const (
	// nearly is the part of the highest goodput that counts as equal to it.
	nearly = 0.99
	// enough is the share within the objective from which no other setting with as
	// many cores is tried.
	enough = 0.99
	// poor is the part of the highest goodput below which fewer cores are not tried.
	poor = 0.95
)

// search tries settings in order. It skips those that cannot become fastest or leanest.
func search(all [][]setting, try func([]setting) (outcome, error)) (best, error) {
	var b best
	tried := map[*setting]float64{}
	satisfied := 0
	for _, s := range all {
		if millicores(s) == satisfied {
			continue // Another setting with as many cores already has enough.
		}
		o, err := try(s)
		if err != nil {
			return best{}, err
		}
		g := o.goodput()
		tried[&s[0]] = g
		if g > b.goodput {
			b.goodput, b.fastest = g, s
		}
		if g > 0 && o.share() >= enough {
			satisfied = millicores(s)
		}
		if g < poor*b.goodput && millicores(s) < millicores(b.fastest) {
			break
		}
	}
	for _, s := range all {
		if g, ok := tried[&s[0]]; ok && g >= nearly*b.goodput && (b.leanest == nil || millicores(s) < millicores(b.leanest)) {
			b.leanest = s
		}
	}
	return b, nil
}
