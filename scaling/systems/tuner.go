package systems

import (
	"time"

	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// Tuner chooses one config, with its batch size and timeout, for all instances of one function, and
// chooses again when the load changes. A batching policy that is Tuned ([batching.Kind]) needs the one
// of its system.
type Tuner interface {
	// Arrived records a request. Times must not go back.
	Arrived(at time.Time)
	// Within sets the room for instances. Call it before Begin.
	Within(room Room)
	// Begin returns the search that is due at now for a load of rate requests per second, nil if
	// none is.
	Begin(now time.Time, rate float64) Search
	// Instances is the least number of instances that meets the objective at the load of the
	// choice. It is 0 if there is no such number or no load.
	Instances() int
}

// Search is a search that a [Tuner] began.
type Search interface {
	// Run searches, which may take long. Any goroutine may call it: nothing that it reads changes
	// meanwhile.
	Run()
	// Take makes the result of Run the tuner's choice and returns it: one candidate with its timeout,
	// or none. The caller must not change the slice. revision changes if earlier instances must be
	// replaced. If only the batch size or the timeout changes, it stays, and the driver must tell the
	// instances.
	Take() (list []capacity.Candidate, revision uint64)
}

// Tuner returns a tuner for a function with the given mean times, nil if the system has none.
func (s System) Tuner(f Function, t Times) Tuner {
	if s.rules.Tuner == nil {
		return nil
	}
	return s.rules.Tuner(s, f, t)
}
