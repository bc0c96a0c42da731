package systems

import (
	"math"
	"time"

	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

const (
	// Pause is the least time between two looks at the load, however many requests cause
	// one.
	Pause = 5 * time.Millisecond
	// idleTicks is the number of ticks between looks while no function has instances or
	// waiting requests.
	idleTicks = 10
	// sameRate is the relative change of a rate below which the batching policy is not
	// told.
	sameRate = 0.01
)

// Driver carries out a plan: the provider's controller, or the simulator.
type Driver interface {
	Stop(s scaling.Stop)
	Resize(r scaling.Resize)
	Park(p scaling.Park)
	Unpark(u scaling.Unpark)
	Pair(p scaling.Pair)
	Start(s scaling.Start)
}

// CarryOut lets the driver do what was planned for the functions, in a plan's order: stops
// come first, because a start may need their room. It returns the time until the next look:
// a tick, or ten if no function has instances or waiting requests. busy says that something
// other than the functions needs a look soon. With a nil driver CarryOut does nothing and
// returns ten ticks.
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
	for _, p := range plan.Pair {
		do.Pair(p)
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

// Deal divides a load among instances with these ranges (r_i, INFless §3.2). It calls tell for
// each instance whose part differs from the last one it was told.
func Deal(rate float64, ranges []capacity.Range, told func(i int) *float64, tell func(i int)) {
	for i, part := range capacity.Rates(rate, ranges) {
		if was := told(i); math.Abs(part-*was) > sameRate**was {
			*was = part
			tell(i)
		}
	}
}
