package router

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/cluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeBackend has instances of both kinds.
type fakeBackend struct {
	cluster.Backend
	instances []cluster.Instance
	events    chan cluster.Instance
	fails     error
	closed    int
	stopped   []cluster.InstanceID
}

func (b *fakeBackend) Instances(context.Context) ([]cluster.Instance, error) {
	return b.instances, b.fails
}

func (b *fakeBackend) Nodes(context.Context) ([]cluster.Node, error) {
	return []cluster.Node{{Name: "a", Total: cluster.Resources{CPU: 4000}}, {Name: "b", Total: cluster.Resources{CPU: 2000}}}, nil
}

func (b *fakeBackend) Events() <-chan cluster.Instance { return b.events }

func (b *fakeBackend) Stop(_ context.Context, id cluster.InstanceID) error {
	b.stopped = append(b.stopped, id)
	return nil
}

func (b *fakeBackend) Close() error {
	b.closed++
	close(b.events)
	return nil
}

func made(id string, kind cluster.Kind, node string, cpu int) cluster.Instance {
	return cluster.Instance{InstanceSpec: cluster.InstanceSpec{ID: cluster.InstanceID(id), Kind: kind, Node: node,
		Config: cluster.Config{Resources: cluster.Resources{CPU: cpu}}}}
}

func TestSplitShowsOneKind(t *testing.T) {
	b := &fakeBackend{events: make(chan cluster.Instance), instances: []cluster.Instance{
		made("m1", cluster.Model, "a", 1000), made("p1", cluster.Process, "a", 100), made("m2", cluster.Model, "b", 2000), made("p2", cluster.Process, "a", 50)}}
	models, processes := Split(b)
	for _, c := range []struct {
		view   cluster.Backend
		ids    string
		others []int
	}{{models, "[m1 m2]", []int{150, 0}}, {processes, "[p1 p2]", []int{1000, 2000}}} {
		found, err := c.view.Instances(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var ids []cluster.InstanceID
		for _, in := range found {
			ids = append(ids, in.ID)
		}
		if fmt.Sprint(ids) != c.ids {
			t.Errorf("instances %v, want %s", ids, c.ids)
		}
		nodes, err := c.view.Nodes(t.Context())
		if err != nil || len(nodes) != 2 || nodes[0].Others.CPU != c.others[0] || nodes[1].Others.CPU != c.others[1] || nodes[0].Total.CPU != 4000 {
			t.Errorf("nodes %+v, %v", nodes, err)
		}
	}
	if err := models.Stop(t.Context(), "m1"); err != nil || len(b.stopped) != 1 {
		t.Error("Stop is not passed on")
	}
	b.fails = errors.New("no answer")
	if _, err := models.Instances(t.Context()); !errors.Is(err, b.fails) {
		t.Errorf("error %v", err)
	}
	if _, err := processes.Nodes(t.Context()); !errors.Is(err, b.fails) {
		t.Errorf("error %v", err)
	}
	for i, closed := range []int{0, 0, 1, 1} {
		if err := []cluster.Backend{models, models, processes, processes}[i].Close(); err != nil || b.closed != closed {
			t.Errorf("after close %d the backend was closed %d times: %v", i, b.closed, err)
		}
	}
}

// Every event reaches its controller in order, whether or not the other one reads.
func TestSplitLosesNoEvent(t *testing.T) {
	b := &fakeBackend{events: make(chan cluster.Instance)}
	models, processes := Split(b)
	const n = 5000
	go func() {
		for i := range n {
			b.events <- made(fmt.Sprint(i), []cluster.Kind{cluster.Model, cluster.Process}[i%2], "", 0)
		}
	}()
	read := func(v cluster.Backend, first int) {
		for i := first; i < n; i += 2 {
			if in := <-v.Events(); in.ID != cluster.InstanceID(fmt.Sprint(i)) {
				t.Errorf("event of %s, want %d", in.ID, i)
				return
			}
		}
	}
	read(models, 0) // All of one kind's before the first of the other's.
	read(processes, 1)
	b.Close()
	for _, v := range []cluster.Backend{models, processes} {
		if _, ok := <-v.Events(); ok { // It waits for their end.
			t.Error("an event of nothing")
		}
	}
}

// The backend can end although a reader no longer reads.
func TestSplitEndsWithoutReaders(t *testing.T) {
	b := &fakeBackend{events: make(chan cluster.Instance)}
	models, processes := Split(b)
	for range 10 {
		b.events <- made("m", cluster.Model, "", 0)
		b.events <- made("p", cluster.Process, "", 0)
	}
	var wait sync.WaitGroup
	wait.Go(func() { models.Close() })
	wait.Go(func() { processes.Close() })
	wait.Wait()
	if b.closed != 1 {
		t.Errorf("closed %d times", b.closed)
	}
}
