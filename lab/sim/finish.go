package sim

import (
	"github.com/faas-infer/faas-infer/cluster"
)

// settle adds to the result what an instance held and did until now.
func (r *run) settle(in *instance) {
	f, weight := &in.fn.result, Weigh(in.holds, r.Beta)
	if in.begun {
		f.ResourceSeconds += weight * r.window.Overlap(in.heldSince, r.now).Seconds()
		in.heldSince = r.now
	}
	if !in.loaded {
		return
	}
	used := in.serving.Used()
	ready := r.window.Overlap(in.readySince, r.now).Seconds()
	busy := (used.Busy - in.used.Busy).Seconds()
	f.BusySeconds += weight * busy
	f.IdleSeconds += weight * (ready - busy)
	f.InstanceSeconds += ready
	f.IdleInstanceSeconds += ready - busy
	f.IdleMemorySeconds += float64(in.holds.Memory+in.holds.GPUMemory) / (1 << 30) * (ready - busy)
	in.tables.result.InstanceSeconds += ready
	in.tables.result.Requests += used.Served - in.used.Served
	in.readySince, in.used = r.now, used
}

// finish returns the result of the run.
func (r *run) finish() *Result {
	for _, in := range r.slots {
		if in != nil {
			r.settle(in)
		}
	}
	for _, fn := range r.functions {
		f := fn.finish()
		r.result.ResourceSeconds += f.ResourceSeconds
		r.result.IdleSeconds += f.IdleSeconds
		r.result.BusySeconds += f.BusySeconds
		r.result.IdleMemorySeconds += f.IdleMemorySeconds
		r.result.Functions = append(r.result.Functions, f)
	}
	r.result.ActiveNodeSeconds, r.result.FragmentPct = r.machines.Finish(r.now)
	r.result.Simulated, r.result.Measured = r.now, r.Duration-r.Warmup
	return &r.result
}

// sample adds the present state to the series.
func (r *run) sample() {
	s := Sample{At: r.now, Functions: make([]FunctionSample, len(r.functions))}
	s.Held, s.Active, s.FragmentPct = r.machines.Now()
	for i, fn := range r.functions {
		fn.carrier.Advance(r.now)
		total := fn.carrier.Total()
		since := total.Sub(fn.sampled)
		fn.sampled = total
		s.Functions[i] = FunctionSample{
			Instances: len(fn.instances), Ready: fn.ready, Held: Weigh(cluster.Resources{CPU: fn.held.CPU, GPU: fn.held.GPU}, r.Beta),
			Arrived: since.Arrived, Missed: since.Missed, Rejected: since.Rejected, Cold: since.Cold, Waiting: fn.carrier.Waiting(),
		}
	}
	r.result.Series = append(r.result.Series, s)
}
