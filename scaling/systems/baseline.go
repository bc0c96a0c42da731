package systems

import (
	"cmp"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/otp"
)

// INFless §5.1 gives each instance of OpenFaaS+ 2 CPU cores and 10 % of a GPU. The configs of
// its profile count threads, of which a core of its testbed has two. It does not say which it
// means.
var (
	twoThreads  = cluster.Resources{CPU: 2000, GPU: 10}
	fourThreads = cluster.Resources{CPU: 4000, GPU: 10}
)

// one considers only the plain share, or the nearest one to it, and one request at a time.
// OpenFaaS has no objectives, so it starts instances even if they take longer.
func one(s System, f Function, rate float64, t Times) []capacity.Candidate {
	all := single(s, f, rate, t)
	if len(all) == 0 {
		return nil
	}
	return []capacity.Candidate{tolerated(slices.MinFunc(all, func(a, b capacity.Candidate) int {
		return cmp.Or(cmp.Compare(s.away(a.Config), s.away(b.Config)), cmp.Compare(a.Exec, b.Exec), cmp.Compare(a.Config.CPU, b.Config.CPU), cmp.Compare(a.Config.Memory, b.Config.Memory))
	}), f.SLO)}
}

// away is how far a config is from the plain share.
func (s System) away(c cluster.Config) float64 {
	return own.Price(cluster.Resources{CPU: abs(s.plain.CPU - c.CPU), GPU: abs(s.plain.GPU - c.GPU)}).PerSecond
}

// Plain returns the times of a model on OpenFaaS+'s instances. They hold the plain share
// where it was not measured, too, with the times of the nearest share that was. Each request
// takes fork more, the time to start the function's process, which the classic watchdog does
// for each request. Of other systems Plain returns t.
func (s System) Plain(t Times, fork time.Duration) Times {
	if s.plain == (cluster.Resources{}) || s.plain == twoThreads && fork == 0 {
		return t
	}
	p := &plainTimes{Times: t, fork: fork}
	for _, c := range t.Configs() {
		if c.Batch == 1 && (p.nearest.Batch == 0 || s.away(c) < s.away(p.nearest)) {
			p.nearest = c
		}
	}
	p.share = p.nearest
	p.share.CPU = s.plain.CPU
	return p
}

// plainTimes are the times of Plain.
type plainTimes struct {
	Times
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

// own is the price of a cluster's resources, βc + g.
var own = otp.Cluster{Beta: capacity.DefaultBeta}

func abs(x int) int { return max(x, -x) }

// uniform considers only the config, with batch size and timeout, that BATCH's optimiser
// finds for the arrivals.
func uniform(s System, f Function, rate float64, t Times) []capacity.Candidate {
	x := s.optimise(f, seen{rate: rate}, t)
	x.Run()
	return x.list
}
