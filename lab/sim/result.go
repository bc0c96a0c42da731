package sim

import (
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// Result is the result of a run, from the end of its warm-up to its end. Weighted figures
// are in β·cores + % of a GPU (INFless §3.4), times seconds.
type Result struct {
	// Functions are in the order of the setup.
	Functions []FunctionResult
	// Series has the state at each multiple of [Setup.Sample], from the beginning of the
	// run.
	Series []Sample
	// ResourceSeconds is the weighted sum of what instances held, from their start to
	// their end. IdleSeconds is the part of ready instances that executed nothing,
	// BusySeconds that of executing ones.
	ResourceSeconds, IdleSeconds, BusySeconds float64
	// IdleMemorySeconds is the memory and GPU memory, in GiB, of ready instances that
	// executed nothing, parked or not.
	IdleMemorySeconds float64
	// FragmentPct is the weighted part in % of the machines with an instance that no
	// instance held, as the mean over time.
	FragmentPct float64
	// ActiveNodeSeconds is the sum of the machines' seconds with an instance.
	ActiveNodeSeconds float64
	// Starts, Stops and Resizes count the engine's actions. Unplaced counts how often it
	// had load without room for an instance.
	Starts, Stops, Resizes, Unplaced int
	// Parks and Unparks count how often an instance gave its share back and took it
	// up again.
	Parks, Unparks int
	// PeakInstances is the maximum number of instances at the same time.
	PeakInstances int
	// Passes is the number of calls of Scale, Decide the sum of their wall times,
	// DecideMax the longest.
	Passes            int
	Decide, DecideMax time.Duration
	// Events is the number of events, including those of the warm-up. Simulated is the
	// time that passed in the simulation, Wall the wall time of the run.
	Events          uint64
	Simulated, Wall time.Duration
	// Measured is the part without the warm-up in which requests came.
	Measured time.Duration
}

// FunctionResult is the result of one function. Requests count by their arrival.
type FunctionResult struct {
	Name string
	// Requests are Served + Rejected. Missed are those of Served that took longer than
	// the objective. Rejected were answered without an execution. Cold found no ready
	// instance. Woken found only parked instances, and one of these served before a new
	// one had started; they are not in Cold.
	Requests, Served, Missed, Rejected, Cold, Woken uint64
	// Hasty counts those of Rejected that an instance could have executed in time, while it was idle: nobody else would
	// have been later for it. Flows of a load do not count it.
	Hasty uint64
	// Latency is that of served requests.
	Latency *Histogram
	// Batches[b] is the number of batches of b requests.
	Batches []uint64
	// ColdMean, QueueMean and ExecMean are the parts of the mean latency of a served
	// request, besides the overhead. It waits for an instance to become ready, then for
	// one to be free and the batch to fill, and is executed.
	ColdMean, QueueMean, ExecMean time.Duration
	// ResourceSeconds, IdleSeconds, BusySeconds and IdleMemorySeconds are this
	// function's parts of those in [Result]. InstanceSeconds and IdleInstanceSeconds are
	// the times without weights of ready instances, including parked ones.
	ResourceSeconds, IdleSeconds, BusySeconds float64
	IdleMemorySeconds                         float64
	InstanceSeconds, IdleInstanceSeconds      float64
	// Starts is the number of started instances.
	Starts int
	// Configs has the result of each config, largest batch first.
	Configs []ConfigResult
}

// ConfigResult is the result of the instances of one config (INFless Fig. 13).
type ConfigResult struct {
	// Artefact is what the instances have loaded.
	Artefact string
	Config   cluster.Config
	// Starts is the number of instances that began with the config, Requests the number
	// of requests that it served.
	Starts   int
	Requests uint64
	// InstanceSeconds is the sum of the instances' ready times.
	InstanceSeconds float64
}

// Violations returns the share of the requests that were not answered within the
// objective, including rejected ones; 0 if there were no requests.
func (f *FunctionResult) Violations() float64 { return share(f.Missed+f.Rejected, f.Requests) }

// ColdRate returns the share of the requests that found no ready instance; 0 if there
// were no requests.
func (f *FunctionResult) ColdRate() float64 { return share(f.Cold, f.Requests) }

// WokenRate returns the share of the requests that waited for a parked instance to take
// up its share; 0 if there were no requests.
func (f *FunctionResult) WokenRate() float64 { return share(f.Woken, f.Requests) }

// Totals returns the sums of all functions' counts. It sets no other field.
func (r *Result) Totals() FunctionResult {
	var t FunctionResult
	for i := range r.Functions {
		f := &r.Functions[i]
		t.Requests += f.Requests
		t.Served += f.Served
		t.Missed += f.Missed
		t.Rejected += f.Rejected
		t.Cold += f.Cold
		t.Woken += f.Woken
	}
	return t
}

// ThroughputPerResource returns the number of requests answered within their objective
// for each weighted resource-second (INFless Fig. 12); 0 if instances held nothing.
func (r *Result) ThroughputPerResource() float64 {
	if r.ResourceSeconds <= 0 {
		return 0
	}
	t := r.Totals()
	return float64(t.Served-t.Missed) / r.ResourceSeconds
}

func share(part, of uint64) float64 {
	if of == 0 {
		return 0
	}
	return float64(part) / float64(of)
}

// Sample is the state of a run at one time. Counts are those since the previous sample.
type Sample struct {
	At time.Duration
	// Held is the weighted sum of what all instances hold. Active is the number of
	// machines with an instance. FragmentPct is the part of these in % that no instance
	// holds.
	Held        float64
	Active      int
	FragmentPct float64
	// Functions are in the order of the setup.
	Functions []FunctionSample
}

// FunctionSample is the state of one function at one time.
type FunctionSample struct {
	// Instances is the number of instances, Ready that of serving ones. Held is the
	// weighted sum of what they hold.
	Instances, Ready int
	Held             float64
	// Arrived, Missed, Rejected and Cold count requests since the previous sample. A
	// request counts as missed when it is sent to an instance. Waiting is the number of
	// waiting requests.
	Arrived, Missed, Rejected, Cold uint64
	Waiting                         int
}
