package shadow

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Way is a way to give a body's function more requests per second.
type Way string

const (
	// Quota raises the body's own share.
	Quota Way = "quota"
	// Unpark gives a parked instance of the body's node its share back.
	Unpark Way = "unpark"
	// Twin starts a whole instance on the body's node.
	Twin Way = "twin"
	// Here starts a shadow on the body's node.
	Here Way = "shadow"
	// Elsewhere starts a shadow on another node.
	Elsewhere Way = "shadow elsewhere"
	// Whole starts a whole instance on another node.
	Whole Way = "whole elsewhere"
)

// Place is what a node has for another instance.
type Place struct {
	// CPU is free, in millicores; Memory is free, in bytes.
	CPU    int   `json:"cpu"`
	Memory int64 `json:"memory"`
	// Weights says whether the model's weights are mapped there already (Shared) or not.
	Weights Accounting `json:"weights"`
	// Transfer is the way from the body to it.
	Transfer Transfer `json:"transfer"`
}

// Situation is the state in which a body needs help.
type Situation struct {
	// Here is the body's node, Elsewhere the best other one.
	Here      Place `json:"here"`
	Elsewhere Place `json:"elsewhere"`
	// Parked is true if a parked instance of the function is on the body's node.
	Parked bool `json:"parked"`
	// Start is the time in ms from the order to the first request, without loading weights
	// that are not mapped, by way. A way that is not in it cannot be taken.
	Start map[Way]float64 `json:"start_ms"`
	// Need are requests per second of body and help together; 0 is any number.
	Need float64 `json:"need"`
	// Until is the time in ms within which the help must be there; 0 is any time.
	Until float64 `json:"until_ms"`
}

// Alternative is one way in a situation.
type Alternative struct {
	Way Way `json:"way"`
	// Pair is the body with its help: a whole instance is the Φ of all blocks, and a higher
	// quota a body alone.
	Pair Pair `json:"pair"`
	// CPU is the body's share in millicores, which Quota raises; Help is that of the other
	// instance.
	CPU  int `json:"cpu"`
	Help int `json:"help"`
	// Ready is the time in ms until it answers.
	Ready float64 `json:"ready_ms"`
	// Reason says why it cannot be taken, "" if it can.
	Reason string `json:"reason,omitempty"`
}

// Ways lists all ways, those that can be taken first, the cheapest request first among them.
// Options are those of one shadow; their MaxRows is the largest batch of one instance, so a
// pair's is twice as large. Their Memory and Transfer do not count: each place has its own.
func Ways(m *Model, o Options, s Situation) ([]Alternative, error) {
	o.Shadows = 1
	o, err := o.defaults()
	if err != nil {
		return nil, err
	}
	if err := m.Check(); err != nil {
		return nil, err
	}
	all := []Alternative{s.quota(m, o)}
	for _, w := range []struct {
		way   Way
		place Place
		whole bool
	}{{Unpark, s.Here, true}, {Twin, s.Here, true}, {Here, s.Here, false}, {Elsewhere, s.Elsewhere, false}, {Whole, s.Elsewhere, true}} {
		all = append(all, s.help(m, o, w.way, w.place, w.whole))
	}
	for i := range all {
		all[i].judge(s)
	}
	slices.SortStableFunc(all, func(a, b Alternative) int {
		if can := a.Reason == ""; can != (b.Reason == "") {
			if can {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Pair.Cost, b.Pair.Cost)
	})
	return all, nil
}

// quota is the lowest higher share that reaches the need. Without a need it is the one with the
// cheapest requests; if none reaches it, the fastest.
func (s Situation) quota(m *Model, o Options) Alternative {
	a := Alternative{Way: Quota, CPU: o.Body, Ready: s.Start[Quota]}
	best := math.Inf(1)
	for _, cpu := range steps(o.Body, o.Body+s.Here.CPU) {
		raised := o
		raised.Body = cpu
		p := newEvaluation(m, raised).pair(nil, 0)
		cost := p.Cost
		if !p.Within || p.PerSecond < s.Need {
			cost = math.Inf(1)
		}
		if cost < best || math.IsInf(best, 1) && p.PerSecond > a.Pair.PerSecond {
			a.Pair, a.CPU, best = p, cpu, cost
		}
		if s.Need > 0 && !math.IsInf(best, 1) {
			break
		}
	}
	if a.CPU == o.Body {
		a.Reason = "no CPU is free on the body's node"
	}
	return a
}

// steps are the shares between two: whole cores, tenths below one, and the last.
func steps(above, most int) (all []int) {
	for cpu := above; cpu < most; {
		by := 1000
		if cpu < 1000 {
			by = 100
		}
		cpu = min(most, (cpu/by+1)*by)
		all = append(all, cpu)
	}
	return all
}

// help is another instance at a place: of the whole model, or with the best Φ.
func (s Situation) help(m *Model, o Options, way Way, place Place, whole bool) Alternative {
	o.Memory, o.Transfer = cmp.Or(place.Weights, Own), place.Transfer
	o.MaxRows, o.Partial = 2*o.MaxRows, true
	a := Alternative{Way: way, CPU: o.Body, Help: o.Shadow, Ready: s.Start[way]}
	switch {
	case way == Unpark && !s.Parked:
		a.Reason = "no instance is parked on the body's node"
	case place.CPU < o.Shadow:
		a.Reason = fmt.Sprintf("%d millicores are free, and it takes %d", place.CPU, o.Shadow)
	}
	if whole {
		a.Pair = newEvaluation(m, o).pair(m.All(), 1)
	} else {
		var err error
		if a.Pair, _, err = Choose(m, o); err != nil {
			a.Reason = err.Error()
		}
	}
	if a.Reason == "" && way != Unpark && a.Pair.Memory > place.Memory {
		a.Reason = fmt.Sprintf("%d MiB are free, and it takes %d", place.Memory>>20, a.Pair.Memory>>20)
	}
	if o.Memory == Own && way != Unpark {
		a.Ready += a.Pair.Load
	}
	return a
}

// judge says why a way cannot be taken, if nothing did so before.
func (a *Alternative) judge(s Situation) {
	_, known := s.Start[a.Way]
	switch {
	case a.Reason != "":
	case !known:
		a.Reason = "it is not offered"
	case !a.Pair.Within:
		a.Reason = "no batch is within the objective"
	case a.Pair.PerSecond < s.Need:
		a.Reason = fmt.Sprintf("it reaches %.1f of %.1f requests per second", a.Pair.PerSecond, s.Need)
	case s.Until > 0 && a.Ready > s.Until:
		a.Reason = fmt.Sprintf("it is ready after %.0f ms, and help is needed within %.0f ms", a.Ready, s.Until)
	}
}
