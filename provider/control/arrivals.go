package control

import (
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/provider/annotation"
)

// arrivalPause is the time between two looks for kinds of GPUs that are new.
const arrivalPause = 5 * time.Second

// arrivals notices kinds of GPUs that came after the functions: with a driver that was loaded late, or
// with a node.
type arrivals struct {
	at time.Time
	// seen are the kinds that there were at any time, nil before the first look.
	seen []string
}

// look prepares all functions again whose models may run on a kind of GPU that was not there before.
// Their known times are in the store, so only those on the new GPU are found. The lock is held.
func (a *arrivals) look(c *Controller, now time.Time) {
	if c.options.Devices == nil || now.Sub(a.at) < arrivalPause || c.keeper.Ended() {
		return
	}
	a.at = now
	first, before := a.seen == nil, len(a.seen)
	if first {
		a.seen = []string{}
	}
	for _, kind := range c.options.Devices.Devices() {
		if !slices.Contains(a.seen, kind) {
			a.seen = append(a.seen, kind)
		}
	}
	if first || len(a.seen) == before {
		return
	}
	for _, fn := range c.functions {
		if fn.wanted != nil && fn.wanted.Inference.Device != annotation.DeviceCPU {
			fn.log.Info().Strs("gpus", a.seen[before:]).Msg("there is a new kind of GPU; the function's models may run there")
			fn.again()
		}
	}
}
