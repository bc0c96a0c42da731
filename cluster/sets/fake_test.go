package sets

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/events"
)

// machine is where instances live: what a backend below runs on. Several replicas of the provider
// may have a view of it.
type machine struct {
	mu        sync.Mutex
	instances map[cluster.InstanceID]*cluster.Instance
	views     []*view
	// happened is what happened to members, in order.
	happened []string

	// startTime, loadTime and stopTime are how long the backend takes to start an instance, an
	// instance to become ready and to exit once it is told so.
	startTime, loadTime, stopTime time.Duration
	// fails says why something fails: "start", "stop", "resize", "park" with the instance.
	fails func(what string, spec cluster.InstanceSpec) error
}

func newMachine() *machine {
	return &machine{instances: map[cluster.InstanceID]*cluster.Instance{}, startTime: 10 * time.Millisecond, loadTime: time.Second, stopTime: 100 * time.Millisecond,
		fails: func(string, cluster.InstanceSpec) error { return nil }}
}

// view is one backend on the machine.
type view struct {
	*machine
	events *events.Queue
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
}

func (m *machine) view() *view {
	v := &view{machine: m, events: events.NewQueue()}
	v.ctx, v.cancel = context.WithCancel(context.Background())
	v.work.Go(func() { v.events.Run(v.ctx) })
	m.mu.Lock()
	defer m.mu.Unlock()
	m.views = append(m.views, v)
	return v
}

// becomes changes an instance's state, unless it was there before, and sends the event. The lock is
// held.
func (m *machine) becomes(id cluster.InstanceID, state cluster.State, reason string) {
	in, ok := m.instances[id]
	if !ok || in.State == state || state == cluster.Ready && in.State != cluster.Starting {
		return
	}
	in.State, in.Reason = state, reason
	switch state {
	case cluster.Ready:
		in.ReadyAt = time.Now()
	case cluster.Exited:
		delete(m.instances, id)
		m.note("exited", id)
	}
	for _, v := range m.views {
		v.events.Push(*in)
	}
}

func (m *machine) note(what string, id cluster.InstanceID) {
	m.happened = append(m.happened, what+" "+string(id))
}

// kill makes an instance exit by itself.
func (m *machine) kill(id cluster.InstanceID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.becomes(id, cluster.Exited, "killed")
}

// ids lists the instances that exist.
func (m *machine) ids() []cluster.InstanceID {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.instances))
}

// get returns an instance.
func (m *machine) get(id cluster.InstanceID) cluster.Instance {
	m.mu.Lock()
	defer m.mu.Unlock()
	return *m.instances[id]
}

// failing sets what fails from now on. The lock is held when fails is called.
func (m *machine) failing(fails func(what string, spec cluster.InstanceSpec) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fails = fails
}

// history returns what happened since the last call.
func (m *machine) history() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.happened
	m.happened = nil
	return all
}

// at returns the ID of a member, "" if it does not exist.
func (m *machine) at(set cluster.InstanceID, number int) cluster.InstanceID {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, in := range m.instances {
		if in.Set == set && in.Member == number {
			return id
		}
	}
	return ""
}

func (v *view) Nodes(context.Context) ([]cluster.Node, error) {
	return []cluster.Node{{Name: "a"}}, nil
}

func (v *view) Start(ctx context.Context, spec cluster.InstanceSpec) (cluster.Instance, error) {
	select {
	case <-time.After(v.startTime):
	case <-ctx.Done():
		return cluster.Instance{}, ctx.Err()
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := v.fails("start", spec); err != nil {
		return cluster.Instance{}, err
	}
	if v.instances[spec.ID] != nil {
		return cluster.Instance{}, errors.New("it exists already")
	}
	in := cluster.Instance{InstanceSpec: spec, State: cluster.Starting, StartedAt: time.Now(), Network: "unix", Address: "/" + string(spec.ID)}
	v.instances[spec.ID] = &in
	v.note("started", spec.ID)
	for _, other := range v.views {
		if other != v {
			other.events.Push(in)
		}
	}
	time.AfterFunc(v.loadTime, func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.becomes(spec.ID, cluster.Ready, "")
	})
	return in, nil
}

func (v *view) Stop(ctx context.Context, id cluster.InstanceID) error {
	v.mu.Lock()
	in := v.instances[id]
	if in == nil {
		v.mu.Unlock()
		return nil
	}
	if err := v.fails("stop", in.InstanceSpec); err != nil {
		v.mu.Unlock()
		return err
	}
	v.becomes(id, cluster.Stopping, "")
	v.mu.Unlock()
	select {
	case <-time.After(v.stopTime):
	case <-ctx.Done():
	case <-v.ctx.Done():
		return ErrClosed
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.becomes(id, cluster.Exited, "stopped")
	return nil
}

func (v *view) change(what string, id cluster.InstanceID, change func(in *cluster.Instance)) error {
	time.Sleep(time.Millisecond)
	v.mu.Lock()
	defer v.mu.Unlock()
	in := v.instances[id]
	if in == nil {
		return errors.New("no such instance")
	}
	if err := v.fails(what, in.InstanceSpec); err != nil {
		return err
	}
	change(in)
	for _, v := range v.views {
		v.events.Push(*in)
	}
	return nil
}

func (v *view) Resize(_ context.Context, id cluster.InstanceID, config cluster.Config) error {
	return v.change("resize", id, func(in *cluster.Instance) { in.Config, in.Parked = config, false })
}

func (v *view) Park(_ context.Context, id cluster.InstanceID) error {
	return v.change("park", id, func(in *cluster.Instance) { in.Parked = true })
}

func (v *view) Instances(context.Context) (all []cluster.Instance, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, in := range v.instances {
		all = append(all, *in)
	}
	slices.SortFunc(all, func(a, b cluster.Instance) int { return cmp.Compare(a.ID, b.ID) })
	return all, nil
}

func (v *view) Events() <-chan cluster.Instance { return v.events.Out() }

func (v *view) Usage(_ context.Context, id cluster.InstanceID) (cluster.Resources, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.instances[id] == nil {
		return cluster.Resources{}, errors.New("no such instance")
	}
	return cluster.Resources{CPU: 100, Memory: 10}, nil
}

func (v *view) Close() error {
	v.cancel()
	v.work.Wait()
	return nil
}

// rig is a backend of sets under test.
type rig struct {
	*Backend
	*machine
	t     *testing.T
	leads bool
	// connected are the calls of the master, and refuses why they fail.
	mu        sync.Mutex
	connected []string
	refuses   error
	// seen are the states of instances as events told them.
	seen []string
	last map[cluster.InstanceID]cluster.Instance
}

// on opens a replica's backend of sets on a machine.
func on(t *testing.T, m *machine, leads bool) *rig {
	t.Helper()
	r := &rig{machine: m, t: t, leads: leads, last: map[cluster.InstanceID]cluster.Instance{}}
	var err error
	r.Backend, err = New(t.Context(), m.view(), Options{Logger: zerolog.Nop(), Leads: func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.leads
	}, Connect: r.connect})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Instances(t.Context()); err != nil {
		t.Fatal(err)
	}
	go func() {
		for in := range r.Events() {
			r.mu.Lock()
			r.seen = append(r.seen, fmt.Sprintf("%s %s", in.ID, in.State))
			r.last[in.ID] = in
			r.mu.Unlock()
		}
	}()
	return r
}

// lead makes the replica lead or follow.
func (r *rig) lead(leads bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leads = leads
}

func (r *rig) connect(_ context.Context, master cluster.Instance, workers []cluster.Instance) error {
	time.Sleep(5 * time.Millisecond)
	r.mu.Lock()
	defer r.mu.Unlock()
	text := string(master.ID) + ":"
	for _, in := range workers {
		text += " " + string(in.ID)
	}
	r.connected = append(r.connected, text)
	return r.refuses
}

// events returns the events since the last call, and forgets them.
func (r *rig) told() string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	text := strings.Join(r.seen, ", ")
	r.seen = nil
	return text
}

// reason returns why an instance exited, as the last event said.
func (r *rig) reason(id cluster.InstanceID) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last[id].Reason
}

// calls is told, for calls of the master.
func (r *rig) calls() int {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.connected)
	r.connected = nil
	return n
}

func (r *rig) begin(spec cluster.InstanceSpec) cluster.Instance {
	r.t.Helper()
	in, err := r.Start(r.t.Context(), spec)
	if err != nil {
		r.t.Fatal(err)
	}
	return in
}

// ready starts a set of three and waits until it is ready.
func (r *rig) ready() cluster.InstanceID {
	r.t.Helper()
	in := r.begin(spec("s"))
	time.Sleep(2 * time.Second)
	if got := r.told(); got != "s ready" {
		r.t.Fatalf("events %q", got)
	}
	r.calls()
	return in.ID
}

// only returns the state of the only instance that drivers see, "" if there is none.
func (r *rig) only() cluster.State {
	r.t.Helper()
	synctest.Wait()
	all, err := r.Instances(r.t.Context())
	if err != nil || len(all) > 1 {
		r.t.Fatalf("%+v, %v", all, err)
	}
	if len(all) == 0 {
		return ""
	}
	return all[0].State
}

// close ends a replica; its instances stay.
func (r *rig) close() {
	r.t.Helper()
	if err := r.Backend.Close(); err != nil {
		r.t.Error(err)
	}
}

// threeParts is a plan for three members.
const threeParts = `{"model":"m","members":3,"rounds":[{"first":0,"end":4,"cut":"channels 3","on":[0,1,2]}]}`

func spec(id cluster.InstanceID) cluster.InstanceSpec {
	return cluster.InstanceSpec{ID: id, Function: "f.n", Node: "a", Revision: 7, Artefact: cluster.Artefact{Bundle: "b", Plan: threeParts},
		Config: cluster.Config{Batch: 4, Parts: 3, Concurrency: 2, Resources: cluster.Resources{CPU: 3000, Memory: 300}}}
}

// try runs a test on virtual time, and checks that nothing is left running.
func try(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := on(t, newMachine(), true)
		test(t, r)
		r.close()
		time.Sleep(time.Minute) // Timers of the machine.
	})
}
