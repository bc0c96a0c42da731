package figure

import (
	"context"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/lab/arrivals"
	"github.com/faas-infer/faas-infer/lab/baselines"
	"github.com/faas-infer/faas-infer/lab/sim"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// tuneInterval is the time between two questions to the tuner.
const tuneInterval = 10 * time.Second

// noDeadline is the objective given to the buffer. It is longer than any run because BATCH
// drops no request.
const noDeadline = 1 << 20 * time.Second

// buffered is a function behind the provider's buffer, tuned by the provider's tuner, on a
// platform that executes every batch at once.
type buffered struct {
	job    tuningJob
	tuner  *baselines.Tuner
	buffer batching.Policy
	meter  scaling.Meter

	now     time.Duration
	arrived uint64
	// came has the arrival times of the waiting requests.
	came map[batching.RequestID]time.Duration
	// config and timeout are the present choice. exec are the config's true times,
	// perSecond and perCall its costs.
	config             cluster.Config
	timeout            time.Duration
	exec               []time.Duration
	perSecond, perCall float64
	hours              []hour
}

// hour has the figures of the requests that came in one hour.
type hour struct {
	requests, batches int
	// latencies are in s. cost is the sum over the requests. tunings counts changes of
	// the choice.
	latencies []float64
	cost      float64
	tunings   int
	// memory and timeout are summed over batches, in MB and s.
	memory, timeout float64
}

const platform = cluster.InstanceID("platform")

func newBuffered(j tuningJob, system systems.System) (*buffered, error) {
	f := systems.Function{
		Name: j.Function.Name, SLO: j.SLO, Percentile: j.Percentile, MaxBatch: j.MaxBatch, Price: j.price(),
	}
	buffer, err := system.Batching(batching.Options{SLO: noDeadline, MaxBatch: j.MaxBatch})
	if err != nil {
		return nil, err
	}
	return &buffered{job: j, tuner: baselines.NewTuner(system, f, j.Times), buffer: buffer, came: map[batching.RequestID]time.Duration{}}, nil
}

// run sends the arrivals of a duration through the buffer.
func (b *buffered) run(ctx context.Context, process arrivals.Process, duration time.Duration, part func(float64)) error {
	b.hours = make([]hour, (duration+time.Hour-1)/time.Hour)
	next, more := process.Next()
	for tick := time.Duration(0); ; {
		more = more && next < duration
		at := tick
		if more {
			at = min(at, next)
		}
		if due, ok := b.buffer.Next(); ok {
			at = min(at, max(b.now, due.Sub(sim.TimeAt(0))))
		} else if !more {
			return nil
		}
		b.now = at
		if at == tick {
			if err := ctx.Err(); err != nil {
				return err
			}
			b.tune()
			tick += tuneInterval
			part(float64(at) / float64(duration))
		}
		if more && at == next {
			b.add()
			next, more = process.Next()
		}
		b.act()
	}
}

// tune asks the tuner for its choice and applies it to the buffer.
func (b *buffered) tune() {
	now := sim.TimeAt(b.now)
	list, _ := b.tuner.Candidates(now, b.meter.Read(now, b.arrived))
	if len(list) == 0 {
		return
	}
	config := list[0].Config
	if timeout := b.tuner.Timeout(config); config != b.config || timeout != b.timeout {
		b.set(config, timeout)
	}
}

func (b *buffered) set(config cluster.Config, timeout time.Duration) {
	b.config, b.timeout = config, timeout
	price := b.job.price().Price(config.Resources)
	b.perSecond, b.perCall = price.PerSecond, price.PerCall
	b.exec = b.exec[:0]
	for k := 1; k <= config.Batch; k++ {
		exec, _ := b.job.Times.Exec(config, k)
		b.exec = append(b.exec, exec)
	}
	for k := len(b.exec) - 2; k >= 0; k-- {
		if b.exec[k] == 0 { // A batch without a time takes as long as the next larger.
			b.exec[k] = b.exec[k+1]
		}
	}
	b.buffer.Up(sim.TimeAt(b.now), batching.Instance{ID: platform, Config: config, Exec: slices.Clone(b.exec), Timeout: timeout})
	if h := b.at(b.now); h != nil {
		h.tunings++
	}
}

// at returns the hour of a time, nil after the last hour.
func (b *buffered) at(t time.Duration) *hour {
	if i := int(t / time.Hour); i < len(b.hours) {
		return &b.hours[i]
	}
	return nil
}

// add lets a request arrive now.
func (b *buffered) add() {
	now := sim.TimeAt(b.now)
	b.arrived++
	id := batching.RequestID(b.arrived)
	b.came[id] = b.now
	b.tuner.Arrived(now)
	b.buffer.Add(now, batching.Request{ID: id, Deadline: now.Add(noDeadline)})
	b.at(b.now).requests++
}

// act executes the batches that leave the buffer, each on a separate instance.
func (b *buffered) act() {
	now := sim.TimeAt(b.now)
	for {
		actions := b.buffer.Actions(now)
		if len(actions) == 0 {
			return
		}
		for _, a := range actions {
			if len(a.Dispatch) > 0 {
				b.execute(a.Dispatch)
			}
		}
		b.buffer.Done(now, platform)
	}
}

// execute records a batch's cost and its requests' latencies.
func (b *buffered) execute(batch []batching.RequestID) {
	exec := b.exec[len(batch)-1]
	share := (b.perSecond*exec.Seconds() + b.perCall) / float64(len(batch))
	for _, id := range batch {
		came := b.came[id]
		delete(b.came, id)
		h := b.at(came)
		h.latencies = append(h.latencies, (b.now + exec - came).Seconds())
		h.cost += share
	}
	h := b.at(min(b.now, time.Duration(len(b.hours))*time.Hour-1))
	h.batches++
	h.memory += float64(b.config.Memory >> 20)
	h.timeout += b.timeout.Seconds()
}
