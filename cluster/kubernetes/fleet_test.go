package kubernetes

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/events"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/nodes"
)

// still returns a backend with a number of nodes and of instances on each, without a
// cluster.
func still(nodeCount, perNode int) *Backend {
	b := &Backend{
		options: Options{Now: time.Now}, selector: labels.Everything(), events: events.NewQueue(),
		entries: map[cluster.InstanceID]*entry{}, exited: map[cluster.InstanceID]time.Time{},
		fleet: fleet{generation: 1, nodes: map[string]*nodes.Node{}, instances: map[string]map[*entry]bool{}, tolerated: map[string][]corev1.Toleration{}, eligible: map[string]*answer{}},
	}
	for n := range nodeCount {
		name := fmt.Sprintf("n%04d", n)
		b.fleet.set(name, &nodes.Node{Name: name, Ready: true, Labels: map[string]string{"disk": "ssd", "host": name},
			Allocatable: cluster.Resources{CPU: 8000, Memory: 8 << 30}, MaxPods: 110})
		for i := range perNode {
			id := cluster.InstanceID(fmt.Sprintf("m-%d-%d", n, i))
			b.newEntry(cluster.Instance{State: cluster.Ready, InstanceSpec: cluster.InstanceSpec{ID: id, Node: name,
				Config: cluster.Config{Batch: 1, Resources: cluster.Resources{CPU: 1000, Memory: 1 << 30}}}}, "n").enter()
		}
	}
	return b
}

func TestOffer(t *testing.T) {
	b := still(2, 3)
	b.fleet.put(&corev1.Pod{Spec: corev1.PodSpec{NodeName: "n0000"}})
	list, err := b.Nodes(t.Context())
	if err != nil || len(list) != 2 || list[0].Name != "n0000" || list[0].Free != (cluster.Resources{CPU: 5000, Memory: 5 << 30}) {
		t.Fatalf("%+v, %v", list, err)
	}
	b.entries["m-0-0"].instance.Parked = true
	b.fleet.markDirty("n0000")
	b.fleet.nodes["n0001"].MaxPods = 3
	b.fleet.markDirty("n0001")
	list, _ = b.Nodes(t.Context())
	if list[0].Total.CPU != 7950 || list[0].Free != (cluster.Resources{CPU: 5950, Memory: 5 << 30}) {
		t.Errorf("one is parked: %+v", list[0])
	}
	if list[1].Total != (cluster.Resources{CPU: 3000, Memory: 3 << 30}) || list[1].Free != (cluster.Resources{}) {
		t.Errorf("no place for a pod more: %+v", list[1])
	}
	cordoned := *b.fleet.nodes["n0000"]
	cordoned.Cordoned = true
	b.fleet.set("n0000", &cordoned)
	if list, _ = b.Nodes(t.Context()); len(list) != 1 {
		t.Errorf("one is cordoned: %+v", list)
	}
}

func TestForgets(t *testing.T) {
	b := still(0, 0)
	now := time.Unix(0, 0)
	b.options.Now = func() time.Time { return now }
	for range 100 {
		for n := range 100 {
			b.rememberExit(cluster.InstanceID(fmt.Sprint(now.Unix(), "-", n)))
		}
		now = now.Add(exitedMemory)
	}
	if n := len(b.exited); n < 100 || n > 2000 {
		t.Errorf("%d of 10000 are remembered, of which 100 should be", n)
	}
}

func BenchmarkNodes(b *testing.B) {
	k := still(2000, 5)
	for b.Loop() {
		for n := range 100 { // What changes between two looks of a busy provider.
			k.fleet.markDirty(fmt.Sprintf("n%04d", n))
		}
		if list, err := k.Nodes(b.Context()); err != nil || len(list) != 2000 {
			b.Fatal(len(list), err)
		}
	}
}

func BenchmarkEligible(b *testing.B) {
	k := still(2000, 5)
	for b.Loop() {
		k.fleet.generation++
		if list, why := k.Eligible(types.FunctionDeployment{Service: "m", Constraints: []string{"disk=ssd"}}); len(list) != 2000 {
			b.Fatal(len(list), why)
		}
	}
}
