package control

import (
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/provider/annotation"
)

// arrivalPause is the time between two looks for kinds of GPUs that are new.
const arrivalPause = 5 * time.Second

// arrivals notices kinds of GPUs that came after a function was prepared: with a driver that was
// loaded late, or with a node.
type arrivals struct{ at time.Time }

// look prepares the functions again whose models may run on a kind of GPU that was not there when
// they were prepared. Their known times are in the store, so only those on the new GPU are found. The
// lock is held.
func (a *arrivals) look(c *Controller, now time.Time) {
	if c.options.Devices == nil || now.Sub(a.at) < arrivalPause || c.keeper.Ended() {
		return
	}
	a.at = now
	kinds := c.options.Devices.Devices()
	for _, fn := range c.functions {
		if fn.wanted == nil || fn.wanted.Inference.Device == annotation.DeviceCPU {
			continue
		}
		fresh := slices.DeleteFunc(slices.Clone(kinds), func(kind string) bool { return slices.Contains(fn.gpus, kind) })
		if len(fresh) > 0 {
			fn.log.Info().Strs("gpus", fresh).Msg("there is a new kind of GPU; the function's models may run there")
			fn.again()
		}
	}
}
