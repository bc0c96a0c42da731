package control

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
)

// fakeTrials measure models that need GPUs of their own, which takes three seconds.
type fakeTrials struct {
	mu    sync.Mutex
	of    []cluster.Instance
	fails error
}

func (*fakeTrials) Takes(file string) bool { return strings.Contains(file, "python") }

func (x *fakeTrials) Measure(ctx context.Context, in cluster.Instance, maxBatch int, _ time.Duration) (*profiler.Profile, error) {
	x.mu.Lock()
	x.of = append(x.of, in)
	err := x.fails
	x.mu.Unlock()
	select {
	case <-time.After(3 * time.Second):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	p := &profiler.Profile{Memory: 3 << 30}
	for b := 1; b <= maxBatch; b *= 2 {
		us := float64(gpuTime(in.Model, b, 100).Microseconds())
		p.Measurements = append(p.Measurements, profiler.Measurement{Batch: b, Threads: 1, Median: us, P95: us, CPU: 40, Runs: 20})
	}
	return p, err
}

func (x *fakeTrials) fail(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.fails = err
}

func (x *fakeTrials) tried() []cluster.Instance {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.of
}

// noMeasurement are GPUs on which nobody but a trial can measure.
type noMeasurement struct {
	fakeGPUs
	kinds []string
}

func (g noMeasurement) Devices() []string { return g.kinds }

func (noMeasurement) OnDevice(context.Context, string, string, int, time.Duration) (*profiler.Profile, error) {
	return nil, errors.New("this machine has no GPU")
}

const smallKind, largeKind = "GPU, driver 1", "other, driver 1"

// gpuNode is a node with a GPU of a kind and a size in MiB.
func gpuNode(name, kind string, mib int64) cluster.Node {
	total := cluster.Resources{GPU: 100, GPUMemory: mib << 20}
	return cluster.Node{Name: name, Total: cluster.Resources{CPU: 4000, Memory: 64 << 30, GPU: 100, GPUMemory: total.GPUMemory},
		Devices: []cluster.DeviceRoom{{UUID: "GPU-" + name, Kind: kind, Total: total, Free: total}}}
}

// withTrials runs f with these nodes.
func withTrials(t *testing.T, kinds []string, nodes []cluster.Node, f func(r *rig, x *fakeTrials)) {
	t.Helper()
	x := &fakeTrials{}
	tryWith(t, func(o *Options) {
		o.Devices, o.Trials = noMeasurement{kinds: kinds}, x
		o.Backend.(*fakeBackend).Machines = nodes
	}, func(r *rig) { f(r, x) })
}

func onCUDA(f *provider.Function) { f.Inference.Device = annotation.DeviceCUDA }

// A model that no other machine can measure is measured in an instance that has a GPU to itself. This ends
// before instances serve, which have the GPU's memory.
func TestTrial(t *testing.T) {
	withTrials(t, []string{smallKind}, []cluster.Node{gpuNode("n1", smallKind, 16000)}, func(r *rig, x *fakeTrials) {
		r.deploy("f", "python", onCUDA)
		r.until("the trial is on", func() bool { return len(x.tried()) == 1 })
		in := x.tried()[0]
		if c := in.Config; in.Role != cluster.Trial || in.State != cluster.Ready || in.Device() != "GPU-n1" || c.GPU != 100 || c.GPUMemory != 16000<<20 || c.Batch != 8 || c.CPU != 1000 || c.Memory != 8<<30 {
			t.Errorf("%+v", in)
		}
		if d := r.describe("f"); d.Measured || len(d.Instances) > 0 {
			t.Errorf("the trial counts as one of its instances: %+v", d)
		}
		r.until("measured", func() bool { return r.describe("f").Measured })
		r.answered("f", "python")
		served := r.only()
		if c := served.Config; served.Role != cluster.Body || c.GPU != 100 || c.GPUMemory != 16000<<20 {
			t.Errorf("%+v", served)
		}
		// The same model needs no other trial.
		r.measured("g", "python", onCUDA)
		if n := len(x.tried()); n != 1 {
			t.Errorf("%d trials", n)
		}
	})
}

// Of two kinds of GPUs each is measured, and an instance takes what the smaller kind has.
func TestTrialsOnTwoKinds(t *testing.T) {
	nodes := []cluster.Node{gpuNode("n1", smallKind, 16000), gpuNode("n2", largeKind, 40000), gpuNode("n3", largeKind, 40000)}
	withTrials(t, []string{smallKind, largeKind}, nodes, func(r *rig, x *fakeTrials) {
		r.measured("f", "python", onCUDA)
		var on []string
		for _, in := range x.tried() {
			on = append(on, in.Node)
		}
		if strings.Join(on, " ") != "n1 n2" {
			t.Errorf("trials on %v", on)
		}
		if failed := r.load("f", 100*time.Millisecond, 10*time.Second); failed > 0 {
			t.Errorf("%d requests failed", failed)
		}
		for _, in := range r.backend.living() {
			if in.Config.GPUMemory != 16000<<20 {
				t.Errorf("%+v", in.Config)
			}
		}
	})
}

// A trial waits until some GPU has no instance, and says so. A kind that is busy does not keep the function from
// the one that was measured.
func TestTrialWaitsForAGPU(t *testing.T) {
	busy := gpuNode("n2", largeKind, 40000)
	busy.Others = cluster.Resources{GPU: 10}
	busy.Devices[0].Others = busy.Others
	withTrials(t, []string{largeKind}, []cluster.Node{busy}, func(r *rig, x *fakeTrials) {
		r.deploy("f", "python", onCUDA)
		r.until("it says what it waits for", func() bool {
			return strings.Contains(r.describe("f").Problem, "all 1 GPUs of this kind are in use or lost")
		})
		r.backend.Mu.Lock()
		r.backend.Machines = []cluster.Node{gpuNode("n2", largeKind, 40000)}
		r.backend.Mu.Unlock()
		r.until("measured", func() bool { return r.describe("f").Measured })
	})
	withTrials(t, []string{largeKind, smallKind}, []cluster.Node{busy, gpuNode("n1", smallKind, 16000)}, func(r *rig, x *fakeTrials) {
		r.measured("f", "python", onCUDA)
		r.answered("f", "python")
		if problem := r.describe("f").Problem; !strings.Contains(problem, largeKind) {
			t.Errorf("it says %q", problem)
		}
		if in := r.only(); in.Node != "n1" {
			t.Errorf("on %s", in.Node)
		}
		r.backend.Mu.Lock()
		r.backend.Machines[0] = gpuNode("n2", largeKind, 40000)
		r.backend.Mu.Unlock()
		time.Sleep(trialTime + time.Minute)
		if d := r.describe("f"); d.Problem != "" || len(x.tried()) != 2 {
			t.Errorf("once the other is free: %q after %d trials", d.Problem, len(x.tried()))
		}
	})
}

// A trial that fails is told and repeated, and leaves no instance behind.
func TestTrialFails(t *testing.T) {
	withTrials(t, []string{smallKind}, []cluster.Node{gpuNode("n1", smallKind, 16000)}, func(r *rig, x *fakeTrials) {
		x.fail(errors.New("CUDA out of memory"))
		r.deploy("f", "python", onCUDA)
		r.until("it says why", func() bool { return strings.Contains(r.describe("f").Problem, "node n1: CUDA out of memory") })
		r.until("the trial has ended", func() bool { return len(r.backend.living()) == 0 })
		x.fail(nil)
		r.until("measured", func() bool { return r.describe("f").Measured })
	})
	withTrials(t, []string{smallKind}, []cluster.Node{gpuNode("n1", smallKind, 16000)}, func(r *rig, x *fakeTrials) {
		r.backend.Mu.Lock()
		r.backend.Behave = func(n int, _ cluster.InstanceSpec) behaviour {
			if n == 0 {
				return behaviour{ReadyAfter: time.Hour, ExitAfter: time.Second, ExitReason: "no module named torch"}
			}
			return behaviour{}
		}
		r.backend.Mu.Unlock()
		r.deploy("f", "python", onCUDA)
		r.until("it says why", func() bool { return strings.Contains(r.describe("f").Problem, "no module named torch") })
		r.until("measured", func() bool { return r.describe("f").Measured })
	})
}

// A function that is removed takes its trial along, also one that waits for its place.
func TestTrialOfARemovedFunction(t *testing.T) {
	withTrials(t, []string{smallKind}, []cluster.Node{gpuNode("n1", smallKind, 16000)}, func(r *rig, x *fakeTrials) {
		r.deploy("f", "python", onCUDA)
		r.until("the trial is on", func() bool { return len(x.tried()) == 1 })
		if err := r.Release(t.Context(), full("f")); err != nil {
			t.Fatal(err)
		}
		r.until("it has ended", func() bool { return len(r.backend.living()) == 0 })
	})
}

// A trial of a provider that was killed is stopped, because it holds the GPU that the next one needs.
func TestTrialIsLeftOver(t *testing.T) {
	x := &fakeTrials{}
	tryWith(t, func(o *Options) {
		o.Devices, o.Trials = noMeasurement{kinds: []string{smallKind}}, x
		b := o.Backend.(*fakeBackend)
		b.Machines = []cluster.Node{gpuNode("n1", smallKind, 16000)}
		b.Mu.Lock()
		defer b.Mu.Unlock()
		b.Add(cluster.InstanceSpec{ID: "left", Function: full("f"), Node: "n1", Devices: []string{"GPU-n1"}, Role: cluster.Trial,
			Config: cluster.Config{Batch: 1, Resources: cluster.Resources{CPU: 1000, Memory: 8 << 30, GPU: 100, GPUMemory: 16000 << 20}}}, behaviour{})
	}, func(r *rig) {
		r.measured("f", "python", onCUDA)
		if tried := x.tried(); len(tried) != 1 || tried[0].ID == "left" {
			t.Errorf("%+v", tried)
		}
		r.answered("f", "python")
		r.only()
	})
}

// A replica that takes over stops the trial of the dead leader, which holds its GPU, and measures what that one did
// not end.
func TestTrialOfADeadLeader(t *testing.T) {
	x := &fakeTrials{}
	nodes := []cluster.Node{gpuNode("n1", smallKind, 16000), gpuNode("n2", largeKind, 40000)}
	together(t, func(o *Options) {
		o.Devices, o.Trials = noMeasurement{kinds: []string{smallKind, largeKind}}, x
		o.Backend.(view).Machines = nodes
	}, func(leader, follower *replica) {
		leader.deploy("f", "python", onCUDA)
		leader.until("the trial on the second kind is on", func() bool { return len(x.tried()) == 2 })
		follower.revision = leader.revision - 1
		follower.deploy("f", "python", onCUDA)
		follower.until("measured on one kind", func() bool { return follower.describe("f").Measured })
		left := x.tried()[1].ID
		leader.dead.Store(true)
		leader.leads.Store(false)
		leader.end() // As if it were killed.
		follower.leads.Store(true)
		if !follower.lives(left) {
			t.Fatal("the trial ended before the takeover")
		}
		follower.until("the trial is stopped", func() bool { return !follower.lives(left) })
		follower.until("the second kind is measured again", func() bool { return len(x.tried()) == 3 && x.tried()[2].Node == x.tried()[1].Node })
		follower.until("no trial is left", func() bool {
			for _, in := range follower.backend.living() {
				if in.Role == cluster.Trial {
					return false
				}
			}
			return true
		})
		follower.leads.Store(false)
		leader.run() // Only to be closed.
	})
}

// An update whose trial needs the GPU that the served version keeps says so, and goes through once the function is scaled
// to 0.
func TestTrialOfAnUpdateOnFullGPUs(t *testing.T) {
	withTrials(t, []string{smallKind}, []cluster.Node{gpuNode("n1", smallKind, 16000)}, func(r *rig, x *fakeTrials) {
		keeps := func(f *provider.Function) { onCUDA(f); f.Inference.MinReplicas, f.Replicas = 1, 1 }
		r.measured("f", "python", keeps)
		r.until("it serves", func() bool { return r.describe("f").Ready == 1 })
		r.deploy("f", "python-2", keeps)
		r.until("it says what to do", func() bool {
			return strings.Contains(r.describe("f").Problem, "scale the function to 0 until it is measured")
		})
		time.Sleep(10 * time.Minute)
		if n := len(x.tried()); n != 1 {
			t.Errorf("%d trials although the GPU is in use", n)
		}
		r.answered("f", "python")
		if err := r.Scale(full("f"), 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Minute)
		if n := len(x.tried()); n != 2 {
			t.Errorf("%d trials", n)
		}
		r.answered("f", "python-2")
		if d := r.describe("f"); d.Problem != "" {
			t.Error(d.Problem)
		}
	})
}
