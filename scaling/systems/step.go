package systems

import (
	"math"
	"time"

	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

const (
	// Pause is the least time between two looks at the load, however many requests ask
	// for one.
	Pause = 5 * time.Millisecond
	// idleTicks is how many ticks apart looks are while there is nothing to look at.
	idleTicks = 10
	// sameRate is the part of a rate by which it may be off before the batching policy
	// is told.
	sameRate = 0.01
)

// Driver does what is planned: the provider's controller, or the simulator.
type Driver interface {
	Stop(s scaling.Stop)
	Resize(r scaling.Resize)
	Park(p scaling.Park)
	Unpark(u scaling.Unpark)
	Start(s scaling.Start)
}

// CarryOut has the driver do what was planned for the functions, in the order that a plan
// means: stops come first, as a start may need their room. It returns after how long to
// look again: a tick, or ten where there is nothing to look at. busy is whether something
// else than the functions has to be looked at soon. A nil driver leaves it all to somebody
// else.
func CarryOut(plan scaling.Plan, functions []scaling.Function, tick time.Duration, busy bool, do Driver) (next time.Duration) {
	if do == nil {
		return idleTicks * tick
	}
	for _, s := range plan.Stop {
		do.Stop(s)
	}
	for _, r := range plan.Resize {
		do.Resize(r)
	}
	for _, p := range plan.Park {
		do.Park(p)
	}
	for _, u := range plan.Unpark {
		do.Unpark(u)
	}
	for _, s := range plan.Start {
		do.Start(s)
	}
	for i := range functions {
		f := &functions[i]
		busy = busy || len(f.Instances) > 0 || f.Waiting > 0 || f.Min > 0
	}
	if !busy {
		tick *= idleTicks
	}
	return tick
}

// Deal divides a load among instances that serve such ranges (r_i, INFless §3.2), and
// tells those whose part is another than they were told.
func Deal(rate float64, ranges []capacity.Range, told func(i int) *float64, tell func(i int)) {
	for i, part := range capacity.Rates(rate, ranges) {
		if was := told(i); math.Abs(part-*was) > sameRate**was {
			*was = part
			tell(i)
		}
	}
}
