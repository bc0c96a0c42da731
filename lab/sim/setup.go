// Package sim runs the policies of production against simulated machines
// (INFless §5.3): requests really queue, are batched, executed and dropped, and
// instances really start, load and stop, but on a virtual clock and without any
// process behind them. The packages systems, scaling, batching and coldstart, which the
// provider drives too, decide everything; this package decides nothing.
//
// [Run] carries one scenario out under one system. Other packages of the lab hold what goes
// around it: where requests come from (arrival), what scenarios are, and how
// figures are made of results.
package sim

import (
	"math/rand/v2"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// Setup is what one run simulates.
type Setup struct {
	// Nodes are the machines, as the scheduler sees them; what is free is
	// ignored: a run begins with all of it.
	Nodes []cluster.Node
	// Machine tells which machine a node is a part of, where one stands for a
	// GPU and not for a whole machine; nil means [fleet.Machine].
	Machine   func(node string) string
	Functions []Function
	System    systems.System
	// Seed makes another run of the same scenario: other execution times. Two
	// runs with the same setup are the same.
	Seed uint64
	// Duration is how long requests come, Warmup how much of it, from the
	// beginning, is not measured.
	Duration, Warmup time.Duration
	// Tick is the time between two looks at the load, as production's; 0 means
	// [DefaultTick].
	Tick time.Duration
	// Overhead is the way to an instance and back.
	Overhead time.Duration
	// ColdWait is how long beyond its objective a request that finds no ready
	// instance may wait; 0 means [DefaultColdWait].
	ColdWait time.Duration
	// Unpark is how long a parked instance takes from being told to take up its share
	// to serving; 0 means [DefaultUnpark].
	Unpark time.Duration
	// QueueLimit bounds the requests that wait for one function; 0 means
	// [DefaultQueueLimit].
	QueueLimit int
	// Fluid has loads flow as rates, without single requests: faster, and less
	// exact. Then every arrival process must be a [Rate], too.
	Fluid bool
	// Beta is what one core is worth in % of a GPU, for the weighted measures; 0
	// means [capacity.DefaultBeta].
	Beta float64
	// Sample is the time between two entries of [Result.Series]; 0 means none.
	Sample time.Duration
	// Progress is told now and then which part of the run is done, from 0 to 1,
	// by the goroutine that runs it; nil if nobody wants to know.
	Progress func(done float64)
}

// The values for what a [Setup] leaves open, as production's.
const (
	DefaultTick       = 100 * time.Millisecond
	DefaultColdWait   = 30 * time.Second
	DefaultQueueLimit = 16_384
	// DefaultUnpark is a few times what the local backend takes to write a quota
	// and to note that it has (BenchmarkUnpark in cluster/local).
	DefaultUnpark = 2 * time.Millisecond
)

// Function is one function of a scenario with its load.
type Function struct {
	systems.Function
	// Times are how long the model's batches really take, unless there is a Truth;
	// then they are only what the system goes by.
	Times    systems.Times
	Truth    Truth
	Arrivals Arrivals
	// Start is how long a cold start takes: the sandbox and loading the model.
	Start time.Duration
	// MinInstances are kept without any load; MaxInstances bounds them, 0 means
	// no bound.
	MinInstances, MaxInstances int
}

// Truth is how long batches take on a certain machine, of which a scheduler has no
// more than an idea.
type Truth interface {
	// Exec is the mean time of a batch of b on the resources of c while nothing
	// holds it up; false where nothing is known of it.
	Exec(c cluster.Config, b int) (mean time.Duration, ok bool)
	// Factor draws how much longer than the mean an execution takes.
	Factor(r *rand.Rand) float64
	// Quota is for how long of every period an instance may execute, as under a
	// CPU quota; a period of 0 is no limit.
	Quota(c cluster.Config) (part, period time.Duration)
}

// Arrivals is when one function's requests come.
type Arrivals interface {
	// Next is when the next request comes, counted from the beginning of the
	// run and never before the one before it; false once there are no more.
	Next() (at time.Duration, ok bool)
}

// Rate is a load as a rate in requests per second that changes with the time, for
// fluid runs.
type Rate interface {
	Rate(at time.Duration) float64
}
