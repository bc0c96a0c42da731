package backend_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/cluster/sets"
)

// twoParts is a plan for two members.
const twoParts = `{"model":"m","members":2,"rounds":[{"first":0,"end":4,"cut":"channels 2","on":[0,1]}]}`

// replica is one replica's backend of sets, with the latest event of each instance.
type replica struct {
	*sets.Backend
	t     *testing.T
	leads atomic.Bool

	mu   sync.Mutex
	last map[cluster.InstanceID]cluster.Instance
	// told is what masters were told last.
	told []cluster.Instance
}

func (r *rig) replica(leads bool) *replica {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	under, err := kubernetes.New(ctx, r.options())
	if err != nil {
		r.t.Fatal(err)
	}
	p := &replica{t: r.t, last: map[cluster.InstanceID]cluster.Instance{}}
	p.leads.Store(leads)
	p.Backend, err = sets.New(ctx, under, sets.Options{Leads: p.leads.Load, Logger: zerolog.Nop(), Connect: func(_ context.Context, _ cluster.Instance, workers []cluster.Instance) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.told = workers
		return nil
	}})
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := p.Instances(ctx); err != nil {
		r.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for in := range p.Events() {
			p.mu.Lock()
			p.last[in.ID] = in
			p.mu.Unlock()
		}
	}()
	r.t.Cleanup(func() {
		if err := p.Close(); err != nil {
			r.t.Error(err)
		}
		<-done
	})
	return p
}

// await waits until the set was reported in a state, and returns it.
func (p *replica) await(id cluster.InstanceID, state cluster.State) (last cluster.Instance) {
	p.t.Helper()
	eventually(p.t, fmt.Sprintf("%s is %s", id, state), func() string {
		p.mu.Lock()
		defer p.mu.Unlock()
		if last = p.last[id]; last.State != state {
			return fmt.Sprintf("%q: %s", last.State, last.Reason)
		}
		return ""
	})
	return last
}

// workers lists the pods of a set's workers.
func (r *rig) workers() []corev1.Pod {
	r.t.Helper()
	list, err := shared.client.CoreV1().Pods(r.namespace).List(r.t.Context(), metav1.ListOptions{LabelSelector: v1alpha1.MemberLabel + "=" + v1alpha1.MemberWorker})
	if err != nil {
		r.t.Fatal(err)
	}
	return list.Items
}

// A set is two pods on two nodes. Two replicas see it as one instance. The leader replaces a
// worker that somebody deletes; the next leader stops the worker when the master is deleted.
func TestSet(t *testing.T) {
	t.Parallel()
	r := newRig(t, true)
	other := r.namespace + "-other"
	r.addNode(other, true, nil)
	a, b := r.replica(true), r.replica(false)
	spec := r.spec(4000)
	spec.Config.Parts, spec.Config.Concurrency, spec.Plan, spec.Nodes = 2, 2, twoParts, []string{r.node, other}
	r.until("both nodes are known", func() string {
		list, err := a.Nodes(t.Context())
		if err != nil || len(list) != 2 {
			return fmt.Sprint(list, err)
		}
		return ""
	})
	if _, err := a.Start(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	if in := a.await(spec.ID, cluster.Ready); in.Config != spec.Config || fmt.Sprint(in.Nodes) != fmt.Sprint(spec.Nodes) {
		t.Errorf("ready %+v", in)
	}
	if in := b.await(spec.ID, cluster.Ready); in.Config != spec.Config || in.Plan != twoParts || fmt.Sprint(in.Nodes) != fmt.Sprint(spec.Nodes) || in.Set != "" {
		t.Errorf("the other sees %+v", in)
	}
	if pod := r.pod(spec.ID); pod.Labels[v1alpha1.MemberLabel] != v1alpha1.MemberMaster || pod.Spec.Containers[0].Resources.Requests.Cpu().MilliValue() != 2000 {
		t.Errorf("the master is %+v", pod)
	}
	first := r.workers()
	if len(first) != 1 || first[0].Spec.NodeName != other {
		t.Fatalf("workers %+v", first)
	}
	nodes, err := b.Nodes(t.Context())
	if err != nil || len(nodes) != 2 || nodes[0].Free.CPU != 6000 || nodes[1].Free.CPU != 6000 {
		t.Errorf("nodes %+v, %v", nodes, err)
	}

	now := int64(0)
	if err := shared.client.CoreV1().Pods(r.namespace).Delete(t.Context(), first[0].Name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
	r.until("another worker", func() string {
		a.mu.Lock()
		defer a.mu.Unlock()
		if len(a.told) == 1 && string(a.told[0].ID) != first[0].Name && a.told[0].Node == other {
			return ""
		}
		return fmt.Sprintf("%+v", a.told)
	})
	for _, x := range []*replica{a, b} {
		if list, err := x.Instances(t.Context()); err != nil || len(list) != 1 || list[0].State != cluster.Ready {
			t.Errorf("%+v, %v", list, err)
		}
	}

	a.leads.Store(false)
	if err := shared.client.CoreV1().Pods(r.namespace).Delete(t.Context(), string(spec.ID), metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
	for _, x := range []*replica{a, b} {
		x.await(spec.ID, cluster.Stopping)
	}
	if len(r.workers()) != 1 {
		t.Error("nobody leads, and the worker is gone")
	}
	b.leads.Store(true)
	for _, x := range []*replica{a, b} {
		if in := x.await(spec.ID, cluster.Exited); in.Reason != "deleted" {
			t.Errorf("exited: %q", in.Reason)
		}
	}
	if left := r.workers(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}
