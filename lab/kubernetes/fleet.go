// Package kubernetes measures the provider on a large cluster: a real API server with
// thousands of nodes and pods that kwok simulates. In the same run it measures a bare client
// of the API server for comparison. Begin with Run.
package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"time"

	"github.com/rs/zerolog"

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
	return Fleet{Nodes: 2000, NodeCPU: "8", NodeMemory: "32Gi", Functions: 40, Pods: 10000, Rounds: 10, Rate: 400, Step: 8 * time.Second, Serve: 10 * time.Second}
}

// Check returns an error that names the invalid options.
func (f Fleet) Check() error {
	var err error
	for _, o := range []struct {
		name           string
		value, minimum int
	}{{"nodes", f.Nodes, 1}, {"functions", f.Functions, 2}, {"pods", f.Pods, 1}, {"rounds", f.Rounds, 1}} {
		if o.value < o.minimum {
			err = errors.Join(err, fmt.Errorf("--%s %d: it must be at least %d", o.name, o.value, o.minimum))
		}
	}
	if f.Rounds > 0 && f.Functions > 1 && f.Pods < f.Rounds*(f.Functions-1) {
		err = errors.Join(err, fmt.Errorf("--pods %d: it must be at least %d, one for each filled function and round", f.Pods, f.Rounds*(f.Functions-1)))
	}
	if !(f.Rate > 0) || f.Step <= 0 || f.Serve <= 0 {
		err = errors.Join(err, errors.New("--rate, --step and --serve must be positive"))
	}
	return err
}

const (
	// modelTime is the time of a batch of one, objective the functions' SLO. They are
	// long because few requests must need many instances.
	modelTime = 400 * time.Millisecond
	objective = 2 * time.Second
	// stepped is the function that gets the load step. It has one instance before.
	stepped = "step"
)

// bench is the state of one run.
type bench struct {
	Fleet
	cluster *testcluster.Cluster
	rig     *testprovider.Rig
	bare    *bare
	writes  *writes
	report  *report.Report
}

// Run starts a cluster and measures the provider on it.
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
	config := c.Config()
	b.writes = newWrites(c.Config())
	config.Wrap(b.writes.wrap)
	if b.rig, err = testprovider.Open(ctx, testprovider.Options{Config: config, Instances: instances, Logger: zerolog.Nop()}); err != nil {
		return nil, err
	}
	b.rig.Run()
	defer func() { err = errors.Join(err, b.rig.Crash()) }() // The pods go with the cluster.
	for _, step := range []func(context.Context) error{b.deploy, b.fill, b.measureMemory, b.serve, b.step} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return b.report, nil
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

// deploy deploys the functions. fill gives instances to all but stepped.
func (b *bench) deploy(ctx context.Context) error {
	b.say("deploying %d functions", b.Functions)
	for i := range b.Functions {
		f := testprovider.Function{Name: b.name(i), SLO: objective, Exec: modelTime}
		if i == 0 {
			f.Min = 1
		}
		if err := b.rig.Deploy(ctx, f); err != nil {
			return err
		}
	}
	return b.until(ctx, "the first instance is ready", func() bool { return b.rig.Ready(stepped) == 1 })
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
	note := fmt.Sprintf("resident set of provider, stand-in and bench in one process, %d nodes, %d pods", b.Nodes, b.Pods)
	b.report.Add("memory_mib", resident, "MiB", note)
	b.report.Add("memory_peak_mib", peak, "MiB", "the same, at its highest so far, the bare client's pods included")
	return ctx.Err()
}

func (f Fleet) say(format string, arguments ...any) {
	if f.Log != nil {
		fmt.Fprintf(f.Log, format+"\n", arguments...)
	}
}

// patience bounds each wait for the cluster.
const patience = 3 * time.Minute

// until waits for a condition. what names it for the error.
func (b *bench) until(ctx context.Context, what string, condition func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, ctx.Err())
		}
	}
	return nil
}
