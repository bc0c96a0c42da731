package baselines

import (
	"cmp"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	paper "github.com/faas-infer/faas-infer/papers/batch"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// INFless §5.1 gives each instance of OpenFaaS+ 2 CPU cores and 10 % of a GPU. The configs of
// its profile count threads, of which a core of its testbed has two. It does not say which it
// means.
var (
	twoThreads  = cluster.Resources{CPU: 2000, GPU: 10}
	fourThreads = cluster.Resources{CPU: 4000, GPU: 10}
)

// plainShares has the share of all instances of OpenFaaS+ by system.
var plainShares = map[string]cluster.Resources{
	OpenFaaS: twoThreads, OpenFaaSCores: fourThreads,
}

// openFaaS returns OpenFaaS+ whose instances have the system's plain share (INFless §5.1).
func openFaaS(name, says string) systems.System {
	return core(Batch).Change(name, says, func(r *systems.Rules) {
		r.Batching, r.Margin, r.Choose, r.Tuner = batching.OneToOneName, 1, one, nil
	})
}

// one considers only the plain share, or the nearest one to it, and one request at a time.
// OpenFaaS has no objectives, so it starts instances even if they take longer.
func one(s systems.System, f systems.Function, rate float64, t systems.Times) []capacity.Candidate {
	all := single(s, f, rate, t)
	if len(all) == 0 {
		return nil
	}
	share := plainShares[s.Name]
	return []capacity.Candidate{systems.Tolerated(slices.MinFunc(all, func(a, b capacity.Candidate) int {
		return cmp.Or(cmp.Compare(away(share, a.Config), away(share, b.Config)), cmp.Compare(a.Exec, b.Exec), cmp.Compare(a.Config.CPU, b.Config.CPU), cmp.Compare(a.Config.Memory, b.Config.Memory))
	}), f.SLO)}
}

// own is the price of a cluster's resources, βc + g.
var own = paper.Cluster{Beta: capacity.DefaultBeta}

// away is how far a config is from a share.
func away(share cluster.Resources, c cluster.Config) float64 {
	return own.Price(cluster.Resources{CPU: abs(share.CPU - c.CPU), GPU: abs(share.GPU - c.GPU)}).PerSecond
}

func abs(x int) int { return max(x, -x) }

// Plain returns the times of a model on OpenFaaS+'s instances. They hold the plain share
// where it was not measured, too, with the times of the nearest share that was. Each request
// takes fork more, the time to start the function's process, which the classic watchdog does
// for each request. Of other systems Plain returns t.
func Plain(s systems.System, t systems.Times, fork time.Duration) systems.Times {
	share, plain := plainShares[s.Name]
	if !plain || share == twoThreads && fork == 0 {
		return t
	}
	p := &plainTimes{Times: t, fork: fork}
	for _, c := range t.Configs() {
		if c.Batch == 1 && (p.nearest.Batch == 0 || away(share, c) < away(share, p.nearest)) {
			p.nearest = c
		}
	}
	p.share = p.nearest
	p.share.CPU = share.CPU
	return p
}

// plainTimes are the times of Plain.
type plainTimes struct {
	systems.Times
	// share is the config of all instances, nearest the one of their times.
	share, nearest cluster.Config
	fork           time.Duration
}

// Configs lists the only config, if there is one.
func (p *plainTimes) Configs() []cluster.Config {
	if p.nearest.Batch == 0 {
		return nil
	}
	return []cluster.Config{p.share}
}

// Exec is the time of a request.
func (p *plainTimes) Exec(c cluster.Config, b int) (time.Duration, bool) {
	if c != p.share {
		return 0, false
	}
	t, ok := p.Times.Exec(p.nearest, b)
	return t + p.fork, ok
}
