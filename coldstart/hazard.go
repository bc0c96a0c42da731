package coldstart

import (
	"fmt"
	"math"
	"time"
)

// Hazard is this project's own policy. It keeps an idle function for as long as
// that pays: while the chance that the next request comes in the next moment,
// times what a cold start costs, is more than what idling costs.
type Hazard struct {
	functions map[string]*ages
}

// ages counts idle times in bins that grow with the length.
type ages struct {
	counts [ageBins + 1]float64
}

const (
	ageBins  = 80
	ageFirst = time.Second
	ageRatio = 1.15
	// coldCost is the idle time that is worth as much as a cold start avoided.
	coldCost = 20 * time.Minute
)

var _ Policy = (*Hazard)(nil)

// NewHazard is a policy that knows no function yet.
func NewHazard() *Hazard { return &Hazard{functions: map[string]*ages{}} }

func ageBin(idle time.Duration) int {
	if idle < ageFirst {
		return 0
	}
	return min(ageBins, 1+int(math.Log(float64(idle)/float64(ageFirst))/math.Log(ageRatio)))
}

func ageEnd(bin int) time.Duration {
	return time.Duration(float64(ageFirst) * math.Pow(ageRatio, float64(bin)))
}

// Observe counts the idle time.
func (p *Hazard) Observe(_ time.Time, function string, idle time.Duration) {
	a := p.functions[function]
	if a == nil {
		a = &ages{}
		p.functions[function] = a
	}
	a.counts[ageBin(idle)]++
}

// Windows keeps for the time at which the expected cost is least.
func (p *Hazard) Windows(_ time.Time, function string) Windows {
	a := p.functions[function]
	if a == nil {
		return Windows{KeepAlive: coldCost}
	}
	total := 1.0
	for _, c := range a.counts {
		total += c
	}
	cost, best, keep, alive := 0.0, 0.0, time.Duration(0), total
	before := time.Duration(0)
	for bin := range ageBins {
		end := ageEnd(bin)
		cost += alive*float64(end-before) - a.counts[bin]*float64(coldCost)
		alive -= a.counts[bin]
		if cost < best {
			best, keep = cost, end
		}
		before = end
	}
	return Windows{KeepAlive: keep}
}

// Forget drops what is known.
func (p *Hazard) Forget(function string) { delete(p.functions, function) }

// Marshal is the bins.
func (p *Hazard) Marshal(function string) []byte {
	a := p.functions[function]
	if a == nil {
		return nil
	}
	w := newWriter(wireHazard)
	for _, c := range a.counts {
		w.real(c)
	}
	return w
}

// Restore takes up the bins.
func (p *Hazard) Restore(function string, state []byte) error {
	r, a := newReader(wireHazard, state), &ages{}
	for i := range a.counts {
		a.counts[i] = r.real()
	}
	if err := r.done(); err != nil {
		return fmt.Errorf("function %s: %w", function, err)
	}
	p.functions[function] = a
	return nil
}
