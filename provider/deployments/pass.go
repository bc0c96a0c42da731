package deployments

import (
	"time"

	"github.com/faas-infer/faas-infer/provider/keeper"
	"github.com/faas-infer/faas-infer/provider/peer"
	"github.com/faas-infer/faas-infer/scaling/replica"
)

// reconcile looks at every function's load. If this replica leads, it scales the function and
// changes its Deployment to match. It returns the time until the next look if nothing happens
// before.
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
		if fn.led {
			fn.Problems.Look(c.options.Decisions, now, fn.Name, func() string { return d.Problem })
		}
		fn.tell(d)
		fn.record(d)
		fn.prune(peers)
	}
	if busy {
		return c.options.Tick
	}
	return keeper.IdleTicks * c.options.Tick
}

// wishGrace is how long, after the number was set by the scale route or a deployment, a new leader
// uses it instead of the Deployment's number. The former leader may not have applied it.
const wishGrace = 10 * time.Second

// lead reports whether this replica scales a function. A replica that has just begun to lead
// continues with the Deployment's number of instances. The lock is held.
func (fn *function) lead(now time.Time, load replica.Load) bool {
	leads := fn.controller.leading()
	if leads && !fn.led {
		n := int(fn.replicas.Wish)
		if is, ok := fn.controller.deployed[fn.Name]; ok && !is.leaving && now.Sub(fn.replicas.WishedAt) > wishGrace {
			n = is.replicas
		}
		fn.replicas.Scaler = replica.New(now, keeper.ScaleSettings(fn.Inference), n)
		fn.replicas.Scaler.Set(now, n, load)
	}
	fn.led = leads
	return leads
}

// decide asks the scaler how many instances one function should have. It reports whether the
// function needs another look soon. The lock is held.
func (fn *function) decide(now time.Time, load replica.Load) (busy bool) {
	fn.replicas.Follow(now, load, fn.Name, &fn.controller.options.Logger, fn.controller.options.Decisions)
	settled := fn.settle(now)
	return fn.replicas.Busy(load) || !settled
}

// prune forgets the counters of replicas that are gone. The lock is held.
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
