package sim

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/lab/baselines"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// carrier carries a function's requests to its ready instances: one by one (Requests), or
// as a load that flows (Flow).
type carrier interface {
	// Handle takes an event of the function's requests.
	Handle(e Event)
	// Advance lets the load flow until now.
	Advance(now time.Duration)
	// Up lets an instance serve, or changes it.
	Up(now time.Duration, in Peer) Ready
	// Down gives an instance no new requests. drained reports whether it has none in
	// flight.
	Down(now time.Duration, id cluster.InstanceID) (drained bool)
	// Park gives an idle instance no requests until Up. It returns false, and does
	// nothing, if the instance is not idle.
	Park(now time.Duration, id cluster.InstanceID) bool
	// Forget drops an instance that is down and drained.
	Forget(id cluster.InstanceID)
	// Waiting returns the number of waiting requests.
	Waiting() int
	// Settled reports whether no request waits or is executed.
	Settled() bool
	// Total returns the counts since the beginning.
	Total() Counts
	// Finish rejects waiting requests and returns the record of the measured time.
	Finish() *Record
}

// function is a function of the setup with its instances and the state of its scaling.
type function struct {
	*Function
	carrier  carrier
	activity *systems.Activity
	tuner    *baselines.Tuner
	upcoming upcoming
	// list are the candidates of the latest pass.
	list []capacity.Candidate
	// instances are in the order of their IDs, which is that of their starts.
	instances []*instance
	running   []scaling.Running
	tables    map[loads]*tables
	// unplaced: the last plan had no room for it. carried is the capacity of that plan over the load.
	unplaced bool
	carried  float64
	// held is what the instances hold, ready the number that serve.
	held  cluster.Resources
	ready int
	// sampled are the counts at the last sample.
	sampled Counts
	result  FunctionResult
}

// loads is what an instance loads, with its config.
type loads struct {
	artefact string
	config   cluster.Config
}

// tables are the predicted and the true times of one config, and the result of its
// instances.
type tables struct {
	predicted, truth []time.Duration
	result           ConfigResult
}

func (r *run) newFunction(index int) (*function, error) {
	f := &r.Functions[index]
	fn := &function{Function: f, activity: r.System.Activity(TimeAt(0)), tuner: baselines.NewTuner(r.System, f.Function, f.Times), tables: map[loads]*tables{}}
	fn.result.Name = f.Name
	wake := func() { r.wake() }
	if rate, ok := f.Arrivals.(Rate); ok && r.Fluid {
		fn.carrier = NewFlow(FlowOptions{
			SLO: f.SLO, ColdWait: r.ColdWait, Overhead: r.Overhead, Rate: rate.Rate, Spread: f.Times.Spread(), Window: r.window, OnCold: wake,
		})
		return fn, nil
	}
	way, err := r.System.Batching(batching.Options{SLO: f.SLO, MaxBatch: f.MaxBatch})
	if err != nil {
		return nil, err
	}
	fn.carrier = NewRequests(TrafficOptions{
		Index: int32(index), Policy: way, SLO: f.SLO, ColdWait: r.ColdWait, Overhead: r.Overhead, QueueLimit: r.QueueLimit,
		Next: fn.next, Spread: f.Times.Spread(), Factor: f.factor(), Pace: f.Pace, Learner: f.Learner, Outcome: f.Outcome, Seed: r.Seed, Window: r.window, Events: &r.events,
		OnCold: wake, OnDrained: func(id cluster.InstanceID) { r.gone(r.instances[id]) },
	})
	return fn, nil
}

// variant returns one of the function's variants, or the only one that a function without
// any has; nil if there is none of that name.
func (f *Function) variant(name string) *systems.Variant {
	if f.Variants == nil {
		return &systems.Variant{Times: f.Times, Loading: f.Start}
	}
	i := slices.IndexFunc(f.Variants.All, func(v systems.Variant) bool { return v.Name == name })
	if i < 0 {
		return nil
	}
	return &f.Variants.All[i]
}

// loading is how long an instance takes to load an artefact.
func (f *Function) loading(artefact string) time.Duration { return f.variant(artefact).Loading }

// exec returns the true mean time of a batch.
func (f *Function) exec(v *systems.Variant, c cluster.Config, b int) (time.Duration, bool) {
	if f.Truth != nil {
		return f.Truth.Exec(c, b)
	}
	return v.Times.Exec(c, b)
}

// device returns what an instance shares with others on its node, nil if nothing.
func (r *run) device(in *instance) *Device {
	name := r.nodes[in.node].Name
	if !r.Serial[name] {
		return nil
	}
	if r.devices[name] == nil {
		r.devices[name] = &Device{}
	}
	return r.devices[name]
}

// quota returns the CPU quota of an instance.
func (f *Function) quota(c cluster.Config) Quota {
	if f.Truth == nil {
		return Quota{}
	}
	part, period := f.Truth.Quota(c)
	return Quota{Part: part, Period: period}
}

// factor returns the function that draws an execution time divided by its mean. It is nil
// if the spread of Times applies.
func (f *Function) factor() func(*rand.Rand) float64 {
	if f.Truth == nil {
		return nil
	}
	return f.Truth.Factor
}

// times returns the tables of a config, nil if the model has no time for its batch.
func (r *run) times(fn *function, artefact string, c cluster.Config) *tables {
	if t, ok := fn.tables[loads{artefact, c}]; ok {
		if fn.Learner != nil {
			t.predicted = fn.Learner.Table(c)
		}
		return t
	}
	v := fn.variant(artefact)
	if v == nil {
		return nil
	}
	truth := make([]time.Duration, c.Batch)
	last := time.Duration(0)
	for b := c.Batch; b > 0; b-- {
		if mean, ok := fn.exec(v, c, b); ok && mean > 0 {
			last = mean
		} else if b == c.Batch {
			return nil
		}
		truth[b-1] = last // A batch without a time takes as long as the next larger.
	}
	predicted := r.System.Table(fn.Function.Function, c, v.Times)
	if fn.Learner != nil {
		predicted = fn.Learner.Table(c)
	}
	t := &tables{predicted: predicted, truth: truth, result: ConfigResult{Artefact: artefact, Config: c}}
	fn.tables[loads{artefact, c}] = t
	return t
}

// finish returns the result of a function.
func (fn *function) finish() FunctionResult {
	f, rec := fn.result, fn.carrier.Finish()
	f.Requests, f.Served, f.Missed, f.Rejected, f.Cold = rec.Arrived, rec.Served, rec.Missed, rec.Rejected, rec.Cold
	f.Woken, f.Hasty = rec.Woken, rec.Hasty
	f.Latency, f.Batches = &rec.Latency, rec.Batches
	f.ColdMean, f.QueueMean, f.ExecMean = rec.Means()
	f.IdleSeconds, f.IdleInstanceSeconds = max(0, f.IdleSeconds), max(0, f.IdleInstanceSeconds)
	f.IdleMemorySeconds = max(0, f.IdleMemorySeconds)
	for _, t := range fn.tables {
		f.Configs = append(f.Configs, t.result)
	}
	slices.SortFunc(f.Configs, func(a, b ConfigResult) int {
		x, y := a.Config, b.Config
		return cmp.Or(cmp.Compare(a.Artefact, b.Artefact), cmp.Compare(y.Batch, x.Batch), cmp.Compare(x.GPU, y.GPU), cmp.Compare(x.CPU, y.CPU), cmp.Compare(x.Memory, y.Memory), cmp.Compare(x.GPUMemory, y.GPUMemory))
	})
	return f
}
