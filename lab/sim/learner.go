package sim

import (
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/steering"
)

// Learner is what the provider's controller does with a function's executions and outcomes: it
// corrects the times and says for which load the engine plans.
type Learner interface {
	// Executed records a batch that an instance with the config has executed.
	Executed(now time.Time, c cluster.Config, batch int, took time.Duration)
	// Look is called before each plan.
	Look(now time.Time, seen steering.Seen) Lesson
	// Table lists the times of batches of 1 to c.Batch on an instance with the config, as its batching
	// policy knows them.
	Table(c cluster.Config) []time.Duration
	// Full returns the largest batch that the objective allows on an instance with the config, 0 if none
	// does, and the planned and the mean time of such a batch. A mean of 0 is unknown.
	Full(c cluster.Config) (batch int, exec, mean time.Duration)
}

// Lesson is what the engine and the instances must know from now on.
type Lesson struct {
	// Candidates are the configs with their times. The caller of Look does not change them.
	Candidates []capacity.Candidate
	// Objective is the one that the engine plans for.
	Objective time.Duration
	// Level and Credit are those of [scaling.Function]. Percentile replaces the function's own in plans if it is
	// not 0.
	Level, Credit, Percentile float64
	// Changed reports whether tables have changed since the last look.
	Changed bool
}

// Outcome is what has become of one request.
type Outcome struct {
	// Arrived is when it came. Cold: it found no ready instance.
	Arrived time.Duration
	Cold    bool
	// InTime: it was answered within the objective. Refused: it was not executed.
	InTime, Refused bool
	// Slow: it was late, and its own execution took longer than the objective.
	Slow bool
}

// outcomes tells an observer about requests and counts those that were not cold, as the provider does.
type outcomes struct {
	steering.Seen
	observe func(Outcome)
}

// add counts a request.
func (c *outcomes) add(o Outcome) {
	if c.observe != nil {
		c.observe(o)
	}
	switch {
	case o.Cold:
		return
	case o.InTime:
		c.InTime++
	case o.Refused:
		c.Refused++
	default:
		c.Late++
	}
	if o.Slow {
		c.Slow++
	}
}

// execution is a batch in flight, with its members' outcomes.
type execution struct {
	took    time.Duration
	members []Outcome
}

// learn passes the function's state to its learner, before a plan. It makes the instances use the times
// that follow. rate is the measured load in requests/s.
func (r *run) learn(fn *function, unplaced bool, rate float64) Lesson {
	seen := fn.carrier.(*Requests).outcomes.Seen
	seen.Percentile, seen.Full, seen.Planned, seen.Rate = fn.Percentile, unplaced, fn.carried, rate
	for _, in := range fn.instances {
		if in.loaded {
			seen.Start = max(seen.Start, fn.loading(in.Artefact.Name))
		}
		switch {
		case in.serves():
			seen.Capacity += in.Config.CPU + in.Config.GPU
		case in.State == cluster.Starting || in.away && !in.Parked:
			seen.Changing = true
		}
	}
	lesson := fn.Learner.Look(TimeAt(r.now), seen)
	for _, in := range fn.instances {
		if !lesson.Changed {
			break
		}
		if in.tables = r.times(fn, in.Artefact.Name, in.Config); in.serves() {
			r.up(in)
		}
	}
	return lesson
}
