package deployments

import (
	"time"

	"github.com/faas-infer/faas-infer/provider/keeper"
	"github.com/faas-infer/faas-infer/provider/peer"
	"github.com/faas-infer/faas-infer/scaling/replica"
)

// reconcile looks at every function's load and, where this replica leads, makes its
// Deployment what it is to be. It returns after how long to do so again if nothing
// happens before.
func (c *Controller) reconcile(now time.Time) time.Duration {
	peers := c.peers()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leading() {
		c.deleteStrays()
	}
	busy := false
	for _, fn := range c.functions {
		load := fn.load(peers)
		if fn.lead(now, load) {
			busy = fn.decide(now, load) || busy
		} else {
			busy = busy || load.Waiting > 0
		}
		d := fn.describe()
		fn.tell(d)
		fn.record(d)
		fn.prune(peers)
	}
	if busy {
		return c.options.Tick
	}
	return idleTicks * c.options.Tick
}

// askedLately is how long a number that was given while another replica led is
// taken for one that this has not heard of.
const askedLately = 10 * time.Second

// lead reports whether this replica scales a function. If it has just begun to, it
// goes on with what runs. The lock is held.
func (fn *function) lead(now time.Time, load replica.Load) bool {
	leads := fn.controller.leading()
	if leads && !fn.led {
		n := int(fn.wish)
		if is, ok := fn.controller.deployed[fn.Name]; ok && !is.leaving && now.Sub(fn.asked) > askedLately {
			n = is.replicas
		}
		fn.replicas = replica.New(now, keeper.ScaleSettings(fn.Inference), n)
		fn.replicas.Set(now, n, load)
	}
	fn.led = leads
	return leads
}

// decide asks scaling for one function, and reports whether there is more to do
// soon. The lock is held.
func (fn *function) decide(now time.Time, load replica.Load) (busy bool) {
	before, came := fn.replicas.Wanted(), load.Arrivals
	after := fn.replicas.Next(now, load)
	if after != before {
		fn.controller.options.Logger.Info().Str("function", fn.Name).Int("from", before).Int("to", after).Msg("scaling")
	}
	settled := fn.settle(now)
	busy = !settled || load.InFlight > 0 || load.Waiting > 0 || came != fn.seen
	fn.seen = came
	return busy
}

// prune forgets replicas that are gone. The lock is held.
func (fn *function) prune(peers []peer.Load) {
	if len(fn.counted) <= len(peers)+1 {
		return
	}
	there := map[string]bool{"": true}
	for _, p := range peers {
		there[p.Boot] = true
	}
	for boot := range fn.counted {
		if !there[boot] {
			delete(fn.counted, boot)
		}
	}
}
