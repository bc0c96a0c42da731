package kubernetes

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/faas-infer/faas-infer/backoff"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/nodes"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
)

const (
	// maxFailures is how many probes in a row an instance on a node that is not ready
	// may fail before it is given up. failurePause is the time between those probes.
	maxFailures  = 3
	failurePause = 500 * time.Millisecond
	// calmPause is the time between probes while all instances of the node answer.
	calmPause = 5 * time.Second
)

// nodeWatch follows the nodes and gives up the instances on lost ones.
type nodeWatch struct{ *Backend }

// seen takes in a node's state.
func (b nodeWatch) seen(object *corev1.Node) {
	n := nodes.Read(object)
	n.Trust(b.options.Now())
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.fleet.nodes[n.Name]
	if before != nil && before.Same(n) {
		return
	}
	if n.Complaint != "" && (before == nil || before.Complaint != n.Complaint) {
		b.log.Warn().Str("node", n.Name).Msg("the node's GPUs are not used: " + n.Complaint)
	}
	b.fleet.set(n.Name, &n)
	b.refusals.Changed(n.Name)
	claimWatch(b).loseDevices(&n)
	if !n.Ready && !b.fleet.suspect[n.Name] {
		b.fleet.suspect[n.Name] = true
		b.begin(func() { b.doubt(n.Name) })
	}
}

// missing takes in that a list lacks a node. The list may be old, so it first asks the
// API server.
func (b nodeWatch) missing(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fleet.set(name, nil) // Nothing is started there in the meantime.
	b.begin(func() { b.confirm(name) })
}

func (b nodeWatch) confirm(name string) {
	var found *corev1.Node
	err := b.insist(func(ctx context.Context) (err error) {
		found, err = b.options.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		return err
	})
	switch {
	case err == nil:
		b.seen(found)
	case apierrors.IsNotFound(err):
		for _, e := range b.on(name) {
			e.fail(fmt.Sprintf("node %s is gone", name), 0)
		}
	case b.ctx.Err() == nil:
		b.log.Error().Err(err).Str("node", name).Msg("cannot find out whether a node still exists; its instances count as running")
	}
}

// check looks for instances on nodes that disappeared while no provider watched.
func (b nodeWatch) check() {
	b.mu.Lock()
	defer b.mu.Unlock()
	missing := map[string]bool{}
	for _, e := range b.entries {
		if node := e.instance.Node; b.fleet.nodes[node] == nil && !missing[node] {
			missing[node] = true
			b.begin(func() { b.confirm(node) })
		}
	}
}

// on returns the instances on a node.
func (b nodeWatch) on(node string) []*entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Keys(b.fleet.instances[node]))
}

// doubt probes the instances on a node for as long as the node is not ready, and gives up
// those that do not answer. A node that the control plane cannot reach may still serve.
func (b nodeWatch) doubt(node string) {
	silent := map[cluster.InstanceID]int{}
	for b.unhealthy(node) {
		pause := calmPause
		for _, e := range b.ask(b.on(node)) {
			pause = failurePause
			if silent[e.instance.ID]++; silent[e.instance.ID] >= maxFailures {
				e.fail(fmt.Sprintf("node lost: %s is not ready and the instance does not answer", node), 0)
			}
		}
		if !backoff.Wait(b.ctx, pause) {
			return
		}
	}
}

// unhealthy reports whether a node exists and is not ready. Otherwise it removes the node
// from the suspect ones.
func (b nodeWatch) unhealthy(node string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.fleet.nodes[node]
	unhealthy := n != nil && !n.Ready
	if !unhealthy {
		delete(b.fleet.suspect, node)
	}
	return unhealthy
}

// ask returns the instances that do not answer.
func (b nodeWatch) ask(all []*entry) (silent []*entry) {
	var mu sync.Mutex
	var asking sync.WaitGroup
	for _, e := range all {
		asking.Go(func() {
			address := e.snapshot().address
			if address != "" && b.prober.Ask(b.ctx, address, podspec.ReadyPath) {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			silent = append(silent, e)
		})
	}
	asking.Wait()
	return silent
}
