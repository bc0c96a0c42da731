package packing

import (
	"fmt"
	"math"

	"github.com/faas-infer/faas-infer/cluster"
)

// Bound returns the largest θ for which θ·Demands could be served, or more: no
// way to schedule can serve a larger part, or multiple, of all demands at once,
// whatever it does. It is 0 where a demand has no item that fits a class, and
// infinite without demands. Costs do not count.
func Bound(p Problem) (float64, error) {
	if err := p.check(); err != nil {
		return 0, err
	}
	theta := math.Inf(1)
	for k, demand := range p.Demands {
		if demand <= 0 {
			continue
		}
		served := 0.0
		for _, c := range p.Classes {
			best := 0.0
			for _, it := range p.Items {
				if it.Demand == k && it.Need.Fits(c.Free) {
					best = max(best, it.Rate*share(c.Free, it))
				}
			}
			served += best * float64(c.Count)
		}
		theta = min(theta, served/demand)
	}
	return theta, nil
}

// check names the first number that cannot be.
func (p Problem) check() error {
	for k, d := range p.Demands {
		if !(d >= 0) || math.IsInf(d, 1) {
			return fmt.Errorf("demand %d is %v: it must be a number of requests per second", k, d)
		}
	}
	for i, it := range p.Items {
		n := it.Need
		switch {
		case it.Demand < 0 || it.Demand >= len(p.Demands):
			return fmt.Errorf("item %d is for demand %d of %d", i, it.Demand, len(p.Demands))
		case !(it.Rate > 0) || math.IsInf(it.Rate, 1):
			return fmt.Errorf("item %d serves %v requests per second: it must be more than 0", i, it.Rate)
		case n.CPU < 0 || n.GPU < 0 || n.Memory < 0 || n.GPUMemory < 0:
			return fmt.Errorf("item %d needs less than nothing: %+v", i, n)
		case n.CPU == 0 && n.GPU == 0:
			return fmt.Errorf("item %d needs neither CPU nor GPU", i)
		}
	}
	for j, c := range p.Classes {
		if c.Count < 0 || !(c.Cost >= 0) || math.IsInf(c.Cost, 1) {
			return fmt.Errorf("class %d: %d nodes at a cost of %v", j, c.Count, c.Cost)
		}
	}
	return nil
}

// share is how many of an item a node's room would hold if it could be cut.
func share(free cluster.Resources, it Item) float64 {
	n := math.Inf(1)
	if it.Need.CPU > 0 {
		n = float64(free.CPU) / float64(it.Need.CPU)
	}
	if it.Need.GPU > 0 && it.Need.CPU == 0 {
		n = float64(free.GPU) / float64(it.Need.GPU)
	}
	return n
}
