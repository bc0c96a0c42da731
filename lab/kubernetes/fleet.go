// Package kubernetes measures the provider on a large cluster: a real API server with
// thousands of nodes and pods that kwok simulates. In the same run it measures a bare client
// of the API server for comparison. Begin with Run.
package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster"
	"github.com/faas-infer/faas-infer/e2e/kubernetes/testprovider"
)

// Fleet are the options of the bench.
type Fleet struct {
	// Nodes is the number of kwok's nodes, NodeCPU and NodeMemory the size of each.
	Nodes               int
	NodeCPU, NodeMemory string
	// Functions is the number of functions. All but one share Pods instances evenly; the
	// other one gets the load step.
	Functions, Pods int
	// Replicas is the number of the provider's replicas. The first one leads.
	Replicas int
	// Rounds is the number of parts in which the pods are made. In each, a bare client
	// makes as many.
	Rounds int
	// Rate is the load step in requests/s, Step its length.
	Rate float64
	Step time.Duration
	// Serve is how long requests are served to count the API server's writes.
	Serve time.Duration
	// Log gets progress messages.
	Log io.Writer
}

// Default returns the size of INFless' largest simulation (§5.4), except for the number of
// pods.
func Default() Fleet {
	return Fleet{
		Nodes: 2000, NodeCPU: "8", NodeMemory: "32Gi", Functions: 40, Pods: 10000, Replicas: 1, Rounds: 10,
		Rate: 400, Step: 8 * time.Second, Serve: 10 * time.Second,
	}
}

// Check returns an error that names the invalid options.
func (f Fleet) Check() error {
	var err error
	for _, o := range []struct {
		name           string
		value, minimum int
	}{{"nodes", f.Nodes, 1}, {"functions", f.Functions, 2}, {"pods", f.Pods, 1}, {"rounds", f.Rounds, 1}, {"replicas", f.Replicas, 1}} {
		if o.value < o.minimum {
			err = errors.Join(err, fmt.Errorf("--%s %d: it must be at least %d", o.name, o.value, o.minimum))
		}
	}
	if f.Rounds > 0 && f.Pods < f.Rounds {
		err = errors.Join(err, fmt.Errorf("--pods %d: it must be at least %d, one for each round", f.Pods, f.Rounds))
	}
	if !(f.Rate > 0) || f.Step <= 0 || f.Serve <= 0 {
		err = errors.Join(err, errors.New("--rate, --step and --serve must be positive"))
	}
	return err
}

const (
	// modelTime is the time of a batch of one, objective the SLO of the function that gets the load
	// step. They are long because few requests must need many instances. An instance of the others
	// carries what a first one is planned for: none is in excess later.
	modelTime   = 400 * time.Millisecond
	objective   = 2 * time.Second
	comfortable = 10 * time.Second
	// stepped is the function that gets the load step. It has one instance before.
	stepped = "step"
)

// bench is the state of one run.
type bench struct {
	Fleet
	cluster *testcluster.Cluster
	// rig is the leader, all are all replicas with it.
	rig    *testprovider.Rig
	all    []*testprovider.Rig
	bare   *bare
	writes *writes
	report *report.Report
	// decisions are the passes that filled the nodes.
	decisions []testprovider.Pass
}

// Run starts a cluster and measures the provider on it. With an error, the report has the results so
// far, or is nil.
func Run(ctx context.Context, f Fleet) (_ *report.Report, err error) {
	if err := f.Check(); err != nil {
		return nil, err
	}
	f.say("starting a control plane")
	c, err := testcluster.Start(ctx, testcluster.Options{Kwok: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	b := &bench{Fleet: f, cluster: c, report: report.New("bench kubernetes", time.Now())}
	if err := b.furnish(ctx); err != nil {
		return nil, err
	}
	instances, err := testprovider.StartStandIns(func(batch int) time.Duration { return testprovider.Times(modelTime, batch) })
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, instances.Close()) }()
	b.writes = newWrites(c.Config())
	stop, err := b.replicate(ctx, instances)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return nil, err
	}
	for _, step := range []func(context.Context) error{b.deploy, b.fill, b.measureMemory} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return b.report, errors.Join(b.serve(ctx), b.step(ctx)) // The decisions count also if the provider does not stop writing.
}

// furnish makes nodes, the namespace and the custom resource.
func (b *bench) furnish(ctx context.Context) error {
	b.say("making %d nodes", b.Nodes)
	if err := b.cluster.AddNodes(ctx, b.Nodes, b.NodeCPU, b.NodeMemory, nil); err != nil {
		return err
	}
	if err := b.cluster.Namespaces(ctx, nil, testprovider.Namespace, bareNamespace); err != nil {
		return err
	}
	if _, err := b.cluster.Kubectl(ctx, customResource, "apply", "-f", "-"); err != nil {
		return err
	}
	if err := b.cluster.Defined(ctx, "functions.faas-infer.dev"); err != nil {
		return err
	}
	var err error
	b.bare, err = newBare(b.cluster.Config(), b.Nodes)
	return err
}

// customResource lets the API server store functions. The bench needs no schema.
const customResource = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: functions.faas-infer.dev}
spec:
  group: faas-infer.dev
  scope: Namespaced
  names: {kind: Function, plural: functions, singular: function, listKind: FunctionList}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// deploy deploys the functions at all replicas. fill gives instances to all but stepped.
func (b *bench) deploy(ctx context.Context) error {
	b.say("deploying %d functions at %d replicas", b.Functions, b.Replicas)
	deploying, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var deployed atomic.Int64
	var all sync.WaitGroup
	all.Go(func() {
		_ = atOnce(b.Functions, func(i int) error { // The first error is deploying's cause.
			err := b.deployOne(deploying, i)
			if err != nil {
				cancel(err)
			} else {
				deployed.Add(1)
			}
			return err
		})
	})
	err := b.until(deploying, "every function is deployed", func() int { return b.Functions - int(deployed.Load()) })
	all.Wait()
	if err != nil {
		return err
	}
	return b.until(ctx, "the first instance is ready", func() int { return 1 - b.rig.Ready(stepped) })
}

// deployOne deploys a function at all replicas, which share its object.
func (b *bench) deployOne(ctx context.Context, i int) error {
	f := testprovider.Function{Name: b.name(i), SLO: comfortable, Exec: modelTime}
	if i == 0 {
		f.Min, f.SLO = 1, objective
	}
	object, err := b.rig.Object(ctx, f)
	if err != nil {
		return err
	}
	for _, r := range b.all {
		if err := r.DeployObject(ctx, f, object); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) name(i int) string {
	if i == 0 {
		return stepped
	}
	return fmt.Sprintf("filled-%d", i)
}

// measureMemory adds this process's memory, which has provider, load and stand-ins.
func (b *bench) measureMemory(ctx context.Context) error {
	debug.FreeOSMemory()
	resident, peak, err := memory()
	if err != nil {
		return err
	}
	note := fmt.Sprintf("resident set of provider, stand-in and bench in one process, %s", b.size())
	b.report.Add("memory_mib", resident, "MiB", note)
	b.report.Add("memory_peak_mib", peak, "MiB", "the same, at its highest so far, the bare client's pods included")
	return ctx.Err()
}

func (f Fleet) say(format string, arguments ...any) {
	if f.Log != nil {
		fmt.Fprintf(f.Log, format+"\n", arguments...)
	}
}

// size names what the figures depend on.
func (f Fleet) size() string {
	return fmt.Sprintf("%d nodes, %d functions, %d pods, %d replicas", f.Nodes, f.Functions, f.Pods, f.Replicas)
}

const (
	// patience bounds each wait for the cluster without progress.
	patience = 3 * time.Minute
	// notice is the time between two messages about a wait.
	notice = 5 * time.Second
)

// until waits until left returns 0 or less. what names the condition for messages and the error.
func (b *bench) until(ctx context.Context, what string, left func() int) error {
	tick := time.Tick(20 * time.Millisecond)
	began := time.Now()
	least, lessAt, told := math.MaxInt, began, began
	for {
		n, now := left(), time.Now()
		switch {
		case n <= 0:
			return nil
		case n < least:
			least, lessAt = n, now
		case now.Sub(lessAt) > patience:
			return fmt.Errorf("wait until %s: %d are left, none less than %v ago", what, n, patience)
		}
		if now.Sub(told) >= notice {
			told = now
			b.say("waiting until %s: %d left after %v", what, n, now.Sub(began).Round(time.Second))
		}
		select {
		case <-tick:
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, context.Cause(ctx))
		}
	}
}
