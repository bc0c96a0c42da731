package systems

import (
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/coldstart"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// The names of the systems.
const (
	INFless   = "infless"
	FaaSInfer = "faas-infer"
)

// baselineKeepAlive is how long the baselines keep idle instances (INFless §5.1).
const baselineKeepAlive = coldstart.DefaultKeepAlive

// The paper does not give these values. They are those of INFless' release: it counts requests
// by the second, and stops instances that were not needed at three looks, 10 s apart.
const (
	inflessPeriod  = time.Second
	inflessRelease = 30 * time.Second
)

// systems lists all systems, faas-infer last. [Register] adds others.
var systems = []System{
	infless(),
	New(FaaSInfer, "ours: configs and places chosen together, one queue per function, the percentile that was promised", Rules{
		Settings: ours(), Cold: "faas-infer", Batching: batching.SharedName, Queue: capacity.LateBound, Choose: every,
	}),
}

// infless returns INFless.
func infless() System {
	s := scaling.DefaultSettings()
	s.Options, s.Headroom, s.Stabilisation = capacity.Faithful(), 0, inflessRelease
	return New(INFless, "INFless as published: Algorithm 1, a queue per instance, predictions + 10 %, LSTH", Rules{
		Settings: s, Period: inflessPeriod, Cold: "lsth", Batching: batching.InFlessName, Queue: capacity.PerInstance, Margin: 1.1, Choose: fitting,
	})
}

// ours returns faas-infer's settings: it plans for all functions at once.
func ours() scaling.Settings {
	s := scaling.DefaultSettings()
	s.Options = schedulers[0].options()
	return s
}
