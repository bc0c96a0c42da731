// Package sim runs the provider's policies against simulated machines (INFless §5.3). On a
// virtual clock, requests queue, are batched, executed and dropped; instances start, load
// and stop. The packages systems, scaling, batching and coldstart, which the provider
// drives too, make all decisions; this package makes none.
//
// Begin with [Run], which simulates one scenario under one system. Other packages of the
// lab make arrivals (arrivals), read scenarios (scenario) and make figures of results
// (figure).
package sim

import (
	"math/rand/v2"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// Setup describes one run.
type Setup struct {
	// Nodes are the machines as the scheduler sees them. A run ignores their Free: it
	// begins with Total less Others.
	Nodes []cluster.Node
	// Boots has the time that a machine takes to boot, by node, for those that are off at
	// first. A machine boots for its first instance, and stays on.
	Boots map[string]time.Duration
	// Serial has the nodes on which batches of different instances execute one after the
	// other, because no instance has its own share.
	Serial map[string]bool
	// Machine returns the machine that a node is a part of, for nodes that are one GPU
	// of a machine; nil means [fleet.Machine].
	Machine   func(node string) string
	Functions []Function
	System    systems.System
	// Seed is the seed of the execution times. Two runs with the same setup are the
	// same.
	Seed uint64
	// Duration is how long requests come. Warmup is the part at the beginning that is
	// not measured.
	Duration, Warmup time.Duration
	// Tick is the time between two passes; 0 means [DefaultTick].
	Tick time.Duration
	// Overhead is the time of the way to an instance and back.
	Overhead time.Duration
	// ColdWait is how long beyond its objective a request that finds no ready
	// instance may wait; 0 means [DefaultColdWait].
	ColdWait time.Duration
	// Unpark is the time that a parked instance takes to serve again; 0 means
	// [DefaultUnpark].
	Unpark time.Duration
	// QueueLimit bounds the requests that wait for one function; 0 means
	// [DefaultQueueLimit].
	QueueLimit int
	// Fluid simulates loads as rates, without single requests. That is faster and less
	// exact. Every arrival process must then be a [Rate] too.
	Fluid bool
	// Told tells systems the true load instead of letting them measure it. Every arrival
	// process must then be a [Rate] too.
	Told bool
	// Beta is what one core is worth in % of a GPU, for the weighted measures; 0
	// means [capacity.DefaultBeta].
	Beta float64
	// Sample is the time between two entries of [Result.Series]; 0 means none.
	Sample time.Duration
	// Progress, if not nil, is called now and then with the part of the run that is
	// done, from 0 to 1, by the goroutine that runs it.
	Progress func(done float64)
}

// The defaults of a [Setup], which are the provider's.
const (
	DefaultTick       = 100 * time.Millisecond
	DefaultColdWait   = 30 * time.Second
	DefaultQueueLimit = 16_384
	// DefaultUnpark is a few times the time that the local backend takes to write and
	// record a quota (BenchmarkUnpark in cluster/local).
	DefaultUnpark = 2 * time.Millisecond
)

// Function is one function of a scenario with its load.
type Function struct {
	systems.Function
	// Times are the execution times that the system knows. They are also the true times
	// if Truth is nil.
	Times    systems.Times
	Truth    Truth
	Arrivals Arrivals
	// Pace, if not nil, multiplies the times of executions that begin at a time: a neighbour on the
	// machine, or a slower clock.
	Pace func(at time.Duration) float64
	// Learner, if not nil, replaces Times as what the scheduler knows.
	Learner Learner
	// Outcome, if not nil, is called with each request when its outcome is known.
	Outcome func(Outcome)
	// Start is the time of a cold start: the sandbox and loading the model. A function
	// with variants has theirs, and their times.
	Start time.Duration
	// Accurate prefers accurate answers to cheap ones; the engine then plans for that.
	Accurate bool
	// MinInstances is the number of instances without any load. MaxInstances is the
	// maximum number; 0 means no bound.
	MinInstances, MaxInstances int
}

// Truth has the true execution times on a machine. The scheduler only has predictions.
type Truth interface {
	// Exec returns the mean time of a batch of b on the resources of c, without the
	// effect of a quota. ok is false if the time is unknown.
	Exec(c cluster.Config, b int) (mean time.Duration, ok bool)
	// Factor draws an execution time divided by its mean.
	Factor(r *rand.Rand) float64
	// Quota returns the part of every period in which an instance may execute; a period
	// of 0 is no limit.
	Quota(c cluster.Config) (part, period time.Duration)
}

// Arrivals are the arrival times of one function's requests.
type Arrivals interface {
	// Next returns the time of the next request since the beginning of the run. Times
	// never decrease. ok is false when there are no more requests.
	Next() (at time.Duration, ok bool)
}

// Rate is a load as a rate over time in requests/s, for fluid runs.
type Rate interface {
	Rate(at time.Duration) float64
}
