package sim

import (
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// Result is what a run has shown between the end of its warm-up and its end.
// Weighted figures are in β·cores + % of a GPU (INFless §3.4), times seconds.
type Result struct {
	// Functions are in the order of the setup.
	Functions []FunctionResult
	// Series is what was so at each multiple of [Setup.Sample], from the run's
	// beginning on.
	Series []Sample
	// ResourceSeconds is what instances held, weighted, from being started to
	// being gone; IdleSeconds the part of ready ones that executed nothing;
	// BusySeconds that of executing ones.
	ResourceSeconds, IdleSeconds, BusySeconds float64
	// IdleMemorySeconds is the memory and GPU memory, in GiB, of ready instances that
	// executed nothing, parked or not.
	IdleMemorySeconds float64
	// FragmentPct is what part of the machines that have an instance, weighted,
	// no instance held: the mean over the time that they had one, in %.
	FragmentPct float64
	// ActiveNodeSeconds counts the machines that have an instance.
	ActiveNodeSeconds float64
	// Starts, Stops and Resizes count what the engine did, Unplaced how often it
	// had load for which there was no instance.
	Starts, Stops, Resizes, Unplaced int
	// Parks and Unparks count how often an instance gave its share back and took it
	// up again.
	Parks, Unparks int
	// PeakInstances is the most instances that there were at the same time.
	PeakInstances int
	// Passes counts the calls of Scale, Decide is the wall time in them and
	// DecideMax the longest.
	Passes            int
	Decide, DecideMax time.Duration
	// Events counts what happened, warm-up included; Simulated is the time that
	// passed in the simulation and Wall how long that took.
	Events          uint64
	Simulated, Wall time.Duration
}

// FunctionResult is what a run has shown of one function. Requests count by when
// they arrive.
type FunctionResult struct {
	Name string
	// Requests are Served + Rejected; Missed are those of Served that took
	// longer than the objective. Rejected were answered without being executed.
	// Cold found no ready instance. Woken are not among them: they found none but
	// parked ones, and one of these served before another had started.
	Requests, Served, Missed, Rejected, Cold, Woken uint64
	// Latency is of those that were served.
	Latency *Histogram
	// Batches counts by size: Batches[b] batches were of b requests.
	Batches []uint64
	// ColdMean, QueueMean and ExecMean say what the mean latency of a served
	// request consists of, with the overhead: waiting for an instance to be
	// ready, for one to be free and the batch to fill, and execution.
	ColdMean, QueueMean, ExecMean time.Duration
	// ResourceSeconds, IdleSeconds, BusySeconds and IdleMemorySeconds are this
	// function's part of [Result]'s; InstanceSeconds and IdleInstanceSeconds are the same without
	// weights, of ready instances, the parked ones included.
	ResourceSeconds, IdleSeconds, BusySeconds float64
	IdleMemorySeconds                         float64
	InstanceSeconds, IdleInstanceSeconds      float64
	// Starts counts the instances that were started.
	Starts int
	// Configs says what each config has served, largest batch first.
	Configs []ConfigResult
}

// ConfigResult is what the instances of one config have done (INFless Fig. 13).
type ConfigResult struct {
	Config cluster.Config
	// Starts counts the instances that began with it, Requests what they served.
	Starts   int
	Requests uint64
	// InstanceSeconds is how long they were ready, altogether.
	InstanceSeconds float64
}

// Violations is the share of the requests that were not answered within the
// objective, the rejected ones included; 0 if there were none.
func (f *FunctionResult) Violations() float64 { return share(f.Missed+f.Rejected, f.Requests) }

// ColdRate is the share of the requests that found no ready instance; 0 if there
// were none.
func (f *FunctionResult) ColdRate() float64 { return share(f.Cold, f.Requests) }

// WokenRate is the share of the requests that waited for a parked instance to take up
// its share; 0 if there were none.
func (f *FunctionResult) WokenRate() float64 { return share(f.Woken, f.Requests) }

// Totals sums the counts of all functions; nothing else of what it returns is
// set.
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

// ThroughputPerResource is how many requests were answered within their objective
// for each weighted resource-second; 0 if nothing was held (INFless Fig. 12).
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

// Sample is one moment of a run. Counts are of the time since the sample before.
type Sample struct {
	At time.Duration
	// Held is what all instances hold, weighted; Active counts the machines that
	// have one, and FragmentPct is what part of these is not held, in %.
	Held        float64
	Active      int
	FragmentPct float64
	// Functions are in the order of the setup.
	Functions []FunctionSample
}

// FunctionSample is one function in one moment.
type FunctionSample struct {
	// Instances exist, Ready of them serve. Held is what they hold, weighted.
	Instances, Ready int
	Held             float64
	// Arrived, Missed, Rejected and Cold count requests since the sample before,
	// Missed when they are sent to an instance; Waiting is how many wait.
	Arrived, Missed, Rejected, Cold uint64
	Waiting                         int
}
