package router

import (
	"context"
	"sync"

	"github.com/faas-infer/faas-infer/cluster"
)

// Split splits a backend between two controllers: each sees only instances and events
// of its own kind, and must start only instances of that kind. The backend is closed
// when both views are closed. It may also be closed directly; that ends both event
// channels and drops their unread events.
func Split(backend cluster.Backend) (models, processes cluster.Backend) {
	s := &shared{Backend: backend, ended: make(chan struct{})}
	m := &view{shared: s, kind: cluster.Model, events: make(chan cluster.Instance)}
	p := &view{shared: s, kind: cluster.Process, events: make(chan cluster.Instance)}
	go s.sort(m.events, p.events)
	return m, p
}

// shared is a backend with two users.
type shared struct {
	cluster.Backend
	// ended is closed when sort has returned.
	ended chan struct{}

	mu     sync.Mutex
	closed int
}

// sort distributes events by kind until the backend's channel ends. It queues the events
// of a controller that does not read, so it never blocks the other. The queues are
// bounded: an instance causes at most three events in its life.
func (s *shared) sort(models, processes chan<- cluster.Instance) {
	defer close(s.ended)
	defer close(models)
	defer close(processes)
	var forModels, forProcesses []cluster.Instance
	events := s.Backend.Events()
	for {
		toModels, model := head(models, forModels)
		toProcesses, process := head(processes, forProcesses)
		select {
		case in, ok := <-events:
			switch {
			case !ok:
				return
			case in.Kind == cluster.Process:
				forProcesses = append(forProcesses, in)
			default:
				forModels = append(forModels, in)
			}
		case toModels <- model:
			forModels = forModels[1:]
		case toProcesses <- process:
			forProcesses = forProcesses[1:]
		}
	}
}

// head returns the next event and its channel, or a nil channel if there is no event.
func head(to chan<- cluster.Instance, waiting []cluster.Instance) (chan<- cluster.Instance, cluster.Instance) {
	if len(waiting) == 0 {
		return nil, cluster.Instance{}
	}
	return to, waiting[0]
}

// view is a backend that shows only one kind of instance.
type view struct {
	*shared
	kind   cluster.Kind
	events chan cluster.Instance
	once   sync.Once
}

// Instances implements [cluster.Backend] for one kind.
func (v *view) Instances(ctx context.Context) ([]cluster.Instance, error) {
	mine, _, err := v.instances(ctx)
	return mine, err
}

func (v *view) instances(ctx context.Context) (mine, others []cluster.Instance, err error) {
	all, err := v.Backend.Instances(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, in := range all {
		if in.Kind == v.kind {
			mine = append(mine, in)
		} else {
			others = append(others, in)
		}
	}
	return mine, others, nil
}

// Nodes implements [cluster.Backend]. It adds what the other kind holds to the nodes'
// Others.
func (v *view) Nodes(ctx context.Context) ([]cluster.Node, error) {
	nodes, err := v.Backend.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	_, others, err := v.instances(ctx)
	if err != nil {
		return nil, err
	}
	at := make(map[string]*cluster.Recount, len(nodes))
	for i := range nodes {
		at[nodes[i].Name] = nodes[i].Recount()
	}
	for _, in := range others {
		for node, part := range in.Shares() {
			if n, ok := at[node]; ok {
				n.Take(&in.InstanceSpec, part)
			}
		}
	}
	for _, n := range at {
		n.Yield()
	}
	return nodes, nil
}

// Events implements [cluster.Backend] for one kind.
func (v *view) Events() <-chan cluster.Instance { return v.events }

// Close implements [cluster.Backend].
func (v *view) Close() error {
	last := false
	v.once.Do(func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.closed++
		last = v.closed == 2
	})
	if !last {
		return nil
	}
	err := v.Backend.Close()
	<-v.ended
	return err
}
