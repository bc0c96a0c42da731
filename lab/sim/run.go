package sim

import (
	"context"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/coldstart"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// Run simulates a setup until its duration is over and all requests are answered, or until
// ctx ends. It returns an error if the setup is invalid, or if the scheduler gives away
// more than a node has.
func Run(ctx context.Context, s Setup) (*Result, error) {
	began := time.Now()
	if err := s.fill(); err != nil {
		return nil, err
	}
	r, err := newRun(&s)
	if err != nil {
		return nil, err
	}
	if err := r.loop(ctx); err != nil {
		return nil, err
	}
	result := r.finish()
	result.Wall = time.Since(began)
	return result, nil
}

// The kinds of events that do not belong to a function's requests.
const (
	// pass: the engine is called.
	pass = Kinds + iota
	// ready: the instance in slot A with the number B has loaded.
	ready
	// back: the instance in slot A with the number B has its share again.
	back
	// flow: loads advance to now.
	flow
	// sample: the series gets an entry.
	sample
	// progress: Setup.Progress is called.
	progress
)

// run is the state of a simulation.
type run struct {
	*Setup
	events    EventQueue
	now       time.Duration
	window    Window
	engine    systems.Scaler
	cold      coldstart.Policy
	functions []*function
	// views are the functions as the engine sees them.
	views []scaling.Function
	// serving and ranges are buffers of deal.
	serving []*instance
	ranges  []capacity.Range

	machines *Machines
	// nodes are the setup's nodes, node their indices by name. used are the
	// nodes with what begun instances hold. The free part of a node is also reduced by the claims
	// of instances that wait for others to leave.
	nodes []cluster.Node
	node  map[string]int
	used  []cluster.Node
	// shares are what begun instances hold of each GPU, by UUID.
	shares map[string]cluster.Resources
	// slots are the instances, free the indices of empty slots.
	slots     []*instance
	free      []int32
	instances map[cluster.InstanceID]*instance
	started   int32
	// on says since when a node's machine is on, or when it will be. devices has what the
	// instances of a serial node share.
	on      map[string]time.Duration
	devices map[string]*Device

	// passAt is the time of the next pass, -1 if none is planned. rested is the earliest
	// time for it.
	passAt, rested time.Duration
	result         Result
	// err ends the simulation.
	err error
}

func newRun(s *Setup) (*run, error) {
	r := &run{
		Setup: s, window: Window{From: s.Warmup, To: s.Duration}, engine: s.System.Scaler(), cold: s.System.Cold(),
		node: map[string]int{}, shares: map[string]cluster.Resources{}, instances: map[cluster.InstanceID]*instance{}, passAt: -1,
		on: map[string]time.Duration{}, devices: map[string]*Device{},
	}
	r.machines = NewMachines(s.Nodes, s.Machine, s.Beta, r.window)
	for i, n := range s.Nodes {
		n.Clear()
		r.nodes = append(r.nodes, n)
		r.node[n.Name] = i
		r.used = append(r.used, cluster.Node{Name: n.Name, Total: n.Total, Free: n.Total})
	}
	r.planPass(0)
	for i := range s.Functions {
		fn, err := r.newFunction(i)
		if err != nil {
			return nil, err
		}
		r.functions = append(r.functions, fn)
	}
	if s.Fluid {
		r.events.Plan(s.Tick, flow, 0, 0)
	}
	if s.Sample > 0 {
		r.events.Plan(0, sample, 0, 0)
	}
	if s.Progress != nil {
		r.events.Plan(0, progress, 0, 0)
	}
	return r, nil
}

// steps is the number of calls of Setup.Progress.
const steps = 200

// loop handles events until the last request is answered.
func (r *run) loop(ctx context.Context) error {
	last := r.Duration + r.patience()
	for {
		e, ok := r.events.Next()
		if !ok || e.At > last || e.At > r.Duration && e.Kind == pass && r.settled() {
			r.now = max(r.now, r.Duration)
			return nil
		}
		r.now = e.At
		if r.result.Events++; r.result.Events&0xfff == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if e.Kind < Kinds {
			r.functions[e.A].carrier.Handle(e)
		} else {
			r.happen(e)
		}
		if r.err != nil {
			return r.err
		}
	}
}

// happen handles an event that does not belong to a function's requests.
func (r *run) happen(e Event) {
	switch e.Kind {
	case pass:
		if e.At == r.passAt {
			r.pass()
		}
	case ready:
		if in := r.slots[e.A]; in != nil && in.number == e.B {
			r.loaded(in)
		}
	case back:
		if in := r.slots[e.A]; in != nil && in.number == e.B {
			r.back(in)
		}
	case flow:
		for _, fn := range r.functions {
			fn.carrier.Advance(r.now)
		}
		r.events.Plan(r.now+r.Tick, flow, 0, 0)
	case sample:
		r.sample()
		if r.now+r.Sample <= r.Duration {
			r.events.Plan(r.now+r.Sample, sample, 0, 0)
		}
	case progress:
		r.Progress(min(1, float64(r.now)/float64(r.Duration)))
		if r.now < r.Duration {
			r.events.Plan(min(r.now+r.Duration/steps+1, r.Duration), progress, 0, 0)
		}
	}
}

// patience returns how long after the end of arrivals a request may still wait.
func (r *run) patience() time.Duration {
	longest := time.Duration(0)
	for _, fn := range r.Functions {
		longest = max(longest, fn.SLO)
	}
	return r.ColdWait + 2*longest + time.Second
}

// settled reports whether every request is answered.
func (r *run) settled() bool {
	for _, fn := range r.functions {
		if !fn.carrier.Settled() {
			return false
		}
	}
	return true
}
