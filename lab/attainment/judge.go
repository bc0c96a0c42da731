package attainment

import (
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/command/load"
)

// well is the part of a second's requests that must be answered within their objectives for
// functions to do well in it.
const well = 0.97

// outcome is what became of a scenario's requests.
type outcome struct {
	// requests and within are those that count, and those of them that were answered
	// within their objectives.
	requests, within int
	// seconds is for how long requests count.
	seconds float64
	// settle is how long after the change before it the last second began and ended in
	// which functions did not do well; 0 if they did in all.
	settle time.Duration
	// cores is what their instances held on average, in cores.
	cores float64
	// bySecond is the part of each second's requests that was in time, in %.
	bySecond []int
}

func (o outcome) share() float64 {
	if o.requests == 0 {
		return 1
	}
	return float64(o.within) / float64(o.requests)
}

// goodput is the answers within the objective, in requests/s.
func (o outcome) goodput() float64 {
	if o.seconds <= 0 {
		return 0
	}
	return float64(o.within) / o.seconds
}

// judge sums up what was observed of functions with these objectives.
func judge(s Scenario, slo []time.Duration, seen []load.Observed) outcome {
	var o outcome
	seconds := int(s.Length / time.Second)
	due, kept := make([]int, seconds+1), make([]int, seconds+1)
	for _, r := range seen {
		second := min(int(r.At/time.Second), seconds)
		in := r.Good && r.Latency <= slo[r.Target]
		due[second]++
		if in {
			kept[second]++
		}
		if s.counts(r.At) {
			o.requests++
			if in {
				o.within++
			}
		}
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

// lastChange is the latest change until a time, or the latest burst.
func lastChange(s Scenario, at time.Duration) time.Duration {
	var last time.Duration
	for _, c := range slices.Concat(s.Changes, s.Bursts) {
		if c <= at {
			last = max(last, c)
		}
	}
	return last
}

// setting is what a fixed function has: so many instances of a share in millicores.
type setting struct{ cpu, count int }

// millicores is what settings take together.
func millicores(of []setting) (sum int) {
	for _, s := range of {
		sum += s.cpu * s.count
	}
	return sum
}

// settings lists what the fixed functions of a scenario can have of a core: each the same
// share, or one of them the next larger one; most first, and few instances before many. Of a
// long one only two are tried.
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

// best is what fixed settings came to: the most goodput that any had, and the fewest cores
// with which one had nearly as much.
type best struct {
	goodput float64
	// fastest and leanest are the settings of these.
	fastest, leanest []setting
}

const (
	// nearly is the part of the most goodput that counts as as much.
	nearly = 0.99
	// enough is the share within the objective beyond which no other setting of as
	// many cores is tried.
	enough = 0.99
	// poor is the part of the most goodput below which fewer cores are not tried.
	poor = 0.95
)

// search tries settings, those with more cores first, as long as they may be of interest.
func search(all [][]setting, try func([]setting) (outcome, error)) (best, error) {
	var b best
	tried := map[*setting]float64{}
	satisfied := 0
	for _, s := range all {
		if millicores(s) == satisfied {
			continue // As many cores did as well as can be.
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
