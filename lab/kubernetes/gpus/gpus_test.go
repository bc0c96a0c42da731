// Package gpus tests a provider whose nodes have GPUs, on a real API server with kwok's nodes. The
// models' times on cores and on shares are those published of INFless' testbed, and stand-ins
// answer with them. Begin with TestLoadOnShares.
package gpus

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster"
	"github.com/faas-infer/faas-infer/e2e/kubernetes/testprovider"
	"github.com/faas-infer/faas-infer/gpu"
	"github.com/faas-infer/faas-infer/lab/sim"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/control"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// patience is how long each step may take on a busy machine.
const patience = 3 * time.Minute

// gate is a production scheduler that starts nothing until it knows the whole load, so that it plans
// for all of it at once. It records this plan, and goes on when it is released.
type gate struct {
	systems.Scaler
	// enough is the load in requests/s of which it must know.
	enough           float64
	passed, released chan struct{}
	// functions, nodes and plan are those of the recorded pass.
	functions []scaling.Function
	nodes     []cluster.Node
	plan      scaling.Plan
}

func done(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// knows reports whether the load and the times on shares are known.
func (g *gate) knows(functions []scaling.Function) bool {
	sum := 0.0
	for _, f := range functions {
		sum += f.Rate
		if !slices.ContainsFunc(f.Configs, func(c capacity.Candidate) bool { return c.Config.GPU > 0 }) {
			return false
		}
	}
	return sum >= g.enough
}

func (g *gate) Scale(now time.Time, functions []scaling.Function, nodes []cluster.Node) scaling.Plan {
	switch {
	case g.enough == 0 || done(g.released):
		return g.Scaler.Scale(now, functions, nodes)
	case done(g.passed) || !g.knows(functions):
		return scaling.Plan{}
	}
	for _, f := range functions {
		f.Configs = slices.Clone(f.Configs)
		g.functions = append(g.functions, f)
	}
	for _, n := range nodes {
		n.Devices = slices.Clone(n.Devices)
		g.nodes = append(g.nodes, n)
	}
	g.plan = g.Scaler.Scale(now, functions, nodes)
	close(g.passed)
	return g.plan
}

// replay gives the simulator's scheduler the functions that production's had. The nodes are the
// simulator's own.
type replay struct {
	systems.Scaler
	of    *gate
	plans []scaling.Plan
}

func (r *replay) Scale(now time.Time, functions []scaling.Function, nodes []cluster.Node) scaling.Plan {
	if len(r.plans) > 0 {
		return scaling.Plan{}
	}
	plan := r.Scaler.Scale(now, r.of.functions, nodes)
	r.plans = append(r.plans, plan)
	return plan
}

// known has the times of the recorded candidates, for the simulator's instances.
type known struct{ scaling.Function }

func (k known) Configs() (all []cluster.Config) {
	for _, c := range k.Function.Configs {
		all = append(all, c.Config)
	}
	return all
}

func (k known) Exec(c cluster.Config, b int) (time.Duration, bool) {
	for _, x := range k.Function.Configs {
		if x.Config.Resources == c.Resources && x.Config.Batch >= b {
			return cmp.Or(x.Mean, x.Exec), true
		}
	}
	return 0, false
}

func (known) Spread() float64 { return 0 }

// constant is a load that does not change.
type constant float64

func (constant) Next() (time.Duration, bool)  { return 0, false }
func (c constant) Rate(time.Duration) float64 { return float64(c) }

// started describes an instance without its batch: an instance that may be given more cores loads
// for a larger batch than it is planned with.
func started(function, node, device string, c cluster.Config) string {
	return fmt.Sprintf("%s with %dm and %d %%, %d MiB of %q on %s", function, c.CPU, c.GPU, c.GPUMemory>>20, device, node)
}

// simulated lets the simulator carry out one pass on empty machines, and returns what it starts.
func simulated(t *testing.T, scheduler string, g *gate, nodes []cluster.Node) (all []string) {
	t.Helper()
	var r *replay
	s := sim.Setup{Nodes: nodes, Duration: 150 * time.Millisecond, Fluid: true, Told: true,
		System: system(t, scheduler).Through(func(inner systems.Scaler) systems.Scaler {
			r = &replay{Scaler: inner, of: g}
			return r
		})}
	for _, f := range g.functions {
		s.Functions = append(s.Functions, sim.Function{
			Function: systems.Function{Name: f.Name, SLO: f.SLO, MaxBatch: 16}, Times: known{f}, Arrivals: constant(f.Rate), Start: time.Second,
		})
	}
	if _, err := sim.Run(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	for _, p := range r.plans[0].Start {
		all = append(all, started(p.Function, p.Node, p.Device, p.Config))
	}
	slices.Sort(all)
	return all
}

// system returns the provider's system with a scheduler, which forgets no load during a test.
func system(t *testing.T, scheduler string) systems.System {
	t.Helper()
	s, err := systems.ByName(systems.Default)
	if err == nil {
		s, err = s.WithScheduler(scheduler)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s.With(func(s *scaling.Settings) { s.Stabilisation, s.Burst = time.Hour, time.Hour })
}

// fleet is a cluster with a rig, nodes with two GPUs each, and functions.
type fleet struct {
	t         *testing.T
	rig       *testprovider.Rig
	instances *testprovider.StandIns
	client    *clientset.Clientset
	gate      *gate
	models    *published
}

const (
	nodeCount = 3
	cores     = 8
	gpuMemory = 11 << 30
)

func device(node string, n int) gpu.Device {
	return gpu.Device{Index: n, UUID: fmt.Sprintf("GPU-%s-%d", node, n), Model: "GeForce RTX 2080 Ti", Memory: gpuMemory, SMs: 68}
}

// clusterOf starts an API server with nodes, until the test ends.
func clusterOf(ctx context.Context, t *testing.T, edit func(*corev1.Node)) *testcluster.Cluster {
	t.Helper()
	c, err := testcluster.Start(ctx, testcluster.Options{Kwok: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := c.Define(ctx, "../../../yaml/crd.yaml"); err != nil {
		t.Fatal(err)
	}
	if err := c.Namespaces(ctx, nil, testprovider.Namespace); err != nil {
		t.Fatal(err)
	}
	if err := c.AddNodes(ctx, nodeCount, fmt.Sprint(cores), "64Gi", edit); err != nil {
		t.Fatal(err)
	}
	return c
}

// start starts all of that.
func start(t *testing.T, scheduler string, g *gate) *fleet {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	c := clusterOf(ctx, t, func(n *corev1.Node) {
		i := gpu.Inventory{Sharing: gpu.MPS, PipeDirectory: "/run/mps", Driver: "450", Devices: []gpu.Device{device(n.Name, 0), device(n.Name, 1)}}
		n.Annotations[gpu.InventoryAnnotation] = i.String()
	})
	f := &fleet{t: t, gate: g, models: &published{}}
	var err error
	if f.client, err = clientset.NewForConfig(c.Config()); err != nil {
		t.Fatal(err)
	}
	a := &answering{}
	if f.instances, err = testprovider.StartStandInsOf(a.exec); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.instances.Close(); err != nil {
			t.Error(err)
		}
	})
	f.rig, err = testprovider.Open(ctx, testprovider.Options{
		Config: c.Config(), Instances: f.instances, Logger: zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.WarnLevel),
		Control: func(o *control.Options) {
			o.Models, o.Devices, o.Engine, o.Machine = f.models, f.models, engine, machine
			o.System = system(t, scheduler).Through(func(inner systems.Scaler) systems.Scaler {
				f.gate.Scaler = inner
				return f.gate
			})
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	a.rig = f.rig
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := f.rig.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return f
}

// load sends requests to functions at rates, in requests/s, until the test ends. It counts answers.
type load struct {
	mu             sync.Mutex
	served, failed int
	last           error
}

func (f *fleet) load(rates map[string]int) *load {
	l := &load{}
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for function, rate := range rates {
		all.Go(func() {
			tick := time.Tick(time.Second / time.Duration(rate))
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick:
				}
				all.Go(func() {
					err := f.rig.Invoke(ctx, function, "x")
					l.mu.Lock()
					defer l.mu.Unlock()
					if err == nil {
						l.served++
					} else if ctx.Err() == nil {
						l.failed, l.last = l.failed+1, err
					}
				})
			}
		})
	}
	f.t.Cleanup(func() {
		stop()
		all.Wait()
	})
	return l
}

// take returns the numbers since the last call that returned at least n.
func (l *load) take(n int) (served, failed int, last error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	served, failed, last = l.served, l.failed, l.last
	if served+failed >= n {
		l.served, l.failed = 0, 0
	}
	return served, failed, last
}

func (f *fleet) until(what string, wrong func() string) {
	f.t.Helper()
	tick := time.Tick(50 * time.Millisecond)
	for deadline := time.Now().Add(patience); ; <-tick {
		why := wrong()
		if why == "" {
			return
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("not within %v: %s; %s", patience, what, why)
		}
	}
}

// pods returns what runs by the API server: of each pod its function, node, GPU and share.
func (f *fleet) pods() (all []string, onGPU int) {
	f.t.Helper()
	list, err := f.client.CoreV1().Pods(testprovider.Namespace).List(f.t.Context(), metav1.ListOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	for i := range list.Items {
		p := &list.Items[i]
		in, err := podspec.ReadModel(p)
		if err != nil {
			f.t.Fatal(err)
		}
		if in.Config.GPU > 0 {
			onGPU++
		}
		all = append(all, started(in.Function, p.Spec.NodeName, in.Device(), in.Config))
	}
	slices.Sort(all)
	return all, onGPU
}

// machines are the nodes as the simulator has them.
func machines() (nodes []cluster.Node) {
	for n := range nodeCount {
		name := fmt.Sprintf("kwok-%04d", n)
		node := cluster.Node{Name: name, Total: cluster.Resources{CPU: cores * 1000, Memory: 64 << 30}}
		for k := range 2 {
			total := cluster.Resources{GPU: 100, GPUMemory: gpuMemory}
			node.Total = node.Total.Add(total)
			node.Devices = append(node.Devices, cluster.DeviceRoom{UUID: device(name, k).UUID, Total: total, Kind: card})
		}
		node.Clear()
		nodes = append(nodes, node)
	}
	return nodes
}

// onCores is what all cores of the cluster can serve of a model, in requests/s.
func onCores(model string) (rps float64) {
	for key, us := range rows(model, false) {
		rps = max(rps, float64(key[1])/us*1e6/float64(key[0])*nodeCount*cores)
	}
	return rps
}

// A load that only GPUs can carry is served by shares. The places on the cluster, of INFless' Algorithm 1
// with Eq. 10 and of the provider's own scheduler, are those that the simulator finds for the same
// input, pod by pod.
func TestLoadOnShares(t *testing.T) {
	for _, scheduler := range systems.Schedulers() {
		t.Run(scheduler, func(t *testing.T) { loadOnShares(t, scheduler) })
	}
}

func loadOnShares(t *testing.T, scheduler string) {
	rates := map[string]int{"resnet-50": 250, "mobilenet": 100}
	if most := onCores("resnet-50"); most > 0.5*float64(rates["resnet-50"]) {
		t.Fatalf("cores alone serve %.0f requests/s", most)
	}
	f := start(t, scheduler, &gate{enough: 300, passed: make(chan struct{}), released: make(chan struct{})})
	for model := range rates {
		if err := f.rig.Deploy(t.Context(), testprovider.Function{Name: model, SLO: 600 * time.Millisecond, Exec: time.Microsecond}); err != nil {
			t.Fatal(err)
		}
	}
	f.rig.Run()
	l := f.load(rates)
	select {
	case <-f.gate.passed:
	case <-time.After(patience):
		t.Fatal("the scheduler does not learn of the load")
	}
	nodes := machines()
	for i, n := range f.gate.nodes {
		nodes[i].Type = n.Type // The simulator's machines are all alike.
		if !n.Same(&nodes[i]) {
			t.Errorf("production sees %+v, the simulator %+v", n, nodes[i])
		}
	}
	want := simulated(t, scheduler, f.gate, nodes)
	f.until("the pods are the simulator's\n"+strings.Join(want, "\n"), func() string {
		if got, _ := f.pods(); !slices.Equal(got, want) {
			return "they are\n" + strings.Join(got, "\n")
		}
		return ""
	})
	if scheduler != systems.Schedulers()[0] {
		return // Algorithm 1 gives all cores to instances without a share before it comes to the GPUs.
	}
	if got, onGPU := f.pods(); onGPU == 0 {
		t.Errorf("no instance has a share of\n%s", strings.Join(got, "\n"))
	}
	close(f.gate.released)
	f.until("of 1,000 requests 980 are served", func() string {
		served, failed, last := l.take(1000)
		if served+failed < 1000 || failed > 20 {
			got, _ := f.pods()
			return fmt.Sprintf("%d served, %d failed, %v, by\n%s", served, failed, last, strings.Join(got, "\n"))
		}
		return ""
	})
}

// What cannot run on a share is told with what is missing, and no pod is made.
func TestRefusedOnShares(t *testing.T) {
	f := start(t, systems.Schedulers()[0], &gate{})
	f.models.unable = "only an ONNX model that is not cut runs on a share of a GPU"
	err := f.rig.Deploy(t.Context(), testprovider.Function{Name: "ssd", SLO: time.Second, Exec: time.Microsecond, Device: annotation.DeviceCUDA})
	if err == nil || !strings.Contains(err.Error(), f.models.unable) || !strings.Contains(err.Error(), annotation.InferDevice) {
		t.Errorf("an engine without GPUs: %v", err)
	}
	f.models.unable, f.models.memory = "", 24<<30
	if err := f.rig.Deploy(t.Context(), testprovider.Function{Name: "resnet-50", SLO: time.Second, Exec: time.Microsecond, Device: annotation.DeviceCUDA, Min: 1}); err != nil {
		t.Fatal(err)
	}
	f.rig.Run()
	f.until("it is told how much memory is needed", func() string {
		status, _ := f.rig.Controller.Status("resnet-50." + testprovider.Namespace)
		if !strings.Contains(fmt.Sprintf("%+v", status), "24576 MiB") {
			return fmt.Sprintf("%+v", status)
		}
		return ""
	})
	if got, _ := f.pods(); len(got) > 0 {
		t.Errorf("pods %v", got)
	}
}
