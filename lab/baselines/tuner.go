package baselines

import (
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

const (
	// retune is the factor by which the load must rise or fall before a new choice.
	retune = 1.25
	// retunePause is the least time between two choices.
	retunePause = 10 * time.Second
)

// Tuner keeps the candidates of one function while its load changes. It chooses again only if the
// load changed clearly, and not again for a pause. If the system has a tuner, that one decides.
type Tuner struct {
	system   systems.System
	function systems.Function
	times    systems.Times
	// own is the system's tuner, nil if it has none.
	own systems.Tuner
	// rate is the load of the choice, made at at. idle says that there was no load at the last look.
	rate     float64
	at       time.Time
	idle     bool
	list     []capacity.Candidate
	revision uint64
}

// NewTuner returns a tuner for a function of a system with the given mean times.
func NewTuner(s systems.System, f systems.Function, t systems.Times) *Tuner {
	return &Tuner{system: s, function: f, times: t, own: s.Tuner(f, t)}
}

// Arrived records a request. Times must not go back.
func (u *Tuner) Arrived(at time.Time) {
	if u.own != nil {
		u.own.Arrived(at)
	}
}

// Within sets the room for instances. Call it before [Tuner.Candidates].
func (u *Tuner) Within(room systems.Room) {
	if u.own != nil {
		u.own.Within(room)
	}
}

// Candidates returns the candidates for the load at now. The caller must not change the slice.
// revision changes when earlier instances must be replaced.
func (u *Tuner) Candidates(now time.Time, rate float64) (list []capacity.Candidate, revision uint64) {
	if u.own != nil {
		if x := u.own.Begin(now, rate); x != nil {
			x.Run()
			u.list, u.revision = x.Take()
		}
		return u.list, u.revision
	}
	u.idle = rate == 0
	moved := rate > u.rate*retune || rate*retune < u.rate
	if u.revision > 0 && (u.rate > 0 && now.Sub(u.at) < retunePause || !moved) {
		return u.list, u.revision
	}
	u.rate, u.at = rate, now
	before := u.list
	u.list = u.system.Candidates(u.function, rate, u.times)
	alike := func(a, b capacity.Candidate) bool { return a.Artefact == b.Artefact && a.Config == b.Config }
	if u.revision == 0 || !slices.EqualFunc(before, u.list, alike) {
		u.revision++
	}
	return u.list, u.revision
}

// Instances is the least number of instances, 0 if the system has no such number or there is no load.
func (u *Tuner) Instances() int {
	if u.own != nil {
		return u.own.Instances()
	}
	if u.idle || u.revision == 0 {
		return 0
	}
	return u.system.Instances(u.function)
}

// Choice returns the config and timeout to which a driver must set all instances of the latest
// revision. ok is false for systems without a tuner, and before the first choice.
func (u *Tuner) Choice() (choice capacity.Candidate, ok bool) {
	if u.own == nil || len(u.list) == 0 {
		return choice, false
	}
	return u.list[0], true
}

// Timeout is how long a batch's first request may wait on an instance with this config.
func (u *Tuner) Timeout(config cluster.Config) time.Duration {
	for _, c := range u.list {
		if c.Config == config {
			return c.Timeout
		}
	}
	return 0
}
