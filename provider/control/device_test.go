package control

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
)

// gpuTime is the time of a batch on gpu % of a GPU: all of it computes a hundred times as fast
// as a core.
func gpuTime(file string, batch, gpu int) time.Duration {
	return execTime(file, batch, 1) / time.Duration(gpu)
}

// fakeGPUs are the nodes' GPUs, all of one kind.
type fakeGPUs struct {
	// unusable is the reason why no model runs there.
	unusable string
}

func (fakeGPUs) Devices() []string                { return []string{"GPU, driver 1"} }
func (fakeGPUs) Suits(string, string) bool        { return true }
func (fakeGPUs) Unable(string, bool) string       { return "" }
func (g fakeGPUs) Unusable(string, string) string { return g.unusable }

func (fakeGPUs) OnDevice(_ context.Context, file, device string, maxBatch int, _ time.Duration) (*profiler.Profile, error) {
	p := &profiler.Profile{Model: file, Engine: "engine cuda", Machine: device, Memory: 100 << 20}
	for _, g := range []int{10, 100} {
		for b := 1; b <= maxBatch; b *= 2 {
			us := float64(gpuTime(file, b, g).Microseconds())
			p.Measurements = append(p.Measurements, profiler.Measurement{Batch: b, Threads: 1, GPU: g, Median: us, P95: us, CPU: 40, Runs: 20, DeviceMemory: 300 << 20})
		}
	}
	return p, nil
}

// withGPUs runs f with a node that has two GPUs of 16 GiB.
func withGPUs(t *testing.T, f func(r *rig)) {
	t.Helper()
	tryWith(t, func(o *Options) {
		o.Devices = fakeGPUs{}
		o.Backend.(*fakeBackend).Machines = []cluster.Node{{Name: "n1", Total: cluster.Resources{CPU: 4000, GPU: 200, Memory: 64 << 30, GPUMemory: 32 << 30}}}
	}, f)
}

// A model that is too slow on the CPU is served by shares of a GPU, with memory there, and meets
// its objective of 200 ms.
func TestServedByShares(t *testing.T) {
	withGPUs(t, func(r *rig) {
		r.measured("f", "slow")
		if failed := r.load("f", 20*time.Millisecond, 20*time.Second); failed > 30 {
			t.Errorf("%d requests failed", failed)
		}
		for _, in := range r.backend.living() {
			if c := in.Config; c.GPU < 10 || c.GPU > 100 || c.GPUMemory != 300<<20 || c.CPU != 250 {
				t.Errorf("%v", c)
			}
		}
		if len(r.backend.living()) == 0 {
			t.Error("nothing serves")
		}
	})
}

// lateGPUs are GPUs that are there once come is set. A model's times are found in a second.
type lateGPUs struct {
	fakeGPUs
	come *atomic.Bool
}

func (g lateGPUs) Devices() []string {
	if !g.come.Load() {
		return nil
	}
	return g.fakeGPUs.Devices()
}

func (g lateGPUs) OnDevice(ctx context.Context, file, device string, maxBatch int, until time.Duration) (*profiler.Profile, error) {
	time.Sleep(time.Second)
	return g.fakeGPUs.OnDevice(ctx, file, device, maxBatch, until)
}

// Functions use a GPU that comes after their deployment, unless they may not. Those that are served
// keep serving meanwhile.
func TestLateGPU(t *testing.T) {
	late := lateGPUs{come: &atomic.Bool{}}
	tryWith(t, func(o *Options) {
		o.Devices = late
		o.Backend.(*fakeBackend).Machines = []cluster.Node{{Name: "n1", Total: cluster.Resources{CPU: 4000, GPU: 200, Memory: 64 << 30, GPUMemory: 32 << 30}}}
	}, func(r *rig) {
		r.measured("f", "m")
		r.measured("c", "m", func(f *provider.Function) { f.Inference.Device = annotation.DeviceCPU })
		r.answered("f", "m")
		shares := func(name string) (n int) {
			r.mu.Lock()
			defer r.mu.Unlock()
			for _, c := range r.functions[full(name)].artefacts[0].candidates {
				if c.Config.GPU > 0 {
					n++
				}
			}
			return n
		}
		if n := shares("f"); n > 0 {
			t.Errorf("%d configs on a GPU that is not there", n)
		}
		r.deploy("w", "m", func(f *provider.Function) { f.Restored, f.Inference.Device = true, annotation.DeviceCUDA })
		r.until("it says what it waits for", func() bool { return strings.Contains(r.describe("w").Problem, "no node has a GPU") })
		late.come.Store(true)
		r.until("the GPU is used", func() bool { return shares("f") > 0 })
		r.answered("w", "m")
		r.answered("f", "m")
		if n := shares("c"); n > 0 {
			t.Errorf("%d configs on a GPU of a function for cores", n)
		}
	})
}

// A function that was deployed while a kind of GPU was away uses it once it is back.
func TestGPUComesBack(t *testing.T) {
	late := lateGPUs{come: &atomic.Bool{}}
	late.come.Store(true)
	tryWith(t, func(o *Options) { o.Devices = late }, func(r *rig) {
		r.measured("f", "m")
		time.Sleep(time.Minute)
		late.come.Store(false)
		time.Sleep(time.Minute)
		r.measured("g", "m2")
		time.Sleep(time.Minute)
		late.come.Store(true)
		r.until("the GPU is used", func() bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			return len(r.functions[full("g")].artefacts[0].profile.DeviceShares()) > 0
		})
		prepares := func() int {
			r.models.mu.Lock()
			defer r.models.mu.Unlock()
			return r.models.prepares
		}
		before := prepares()
		time.Sleep(10 * time.Minute)
		if n := prepares() - before; n > 0 {
			t.Errorf("prepared %d times more although nothing is new", n)
		}
	})
}

// learningGPUs are GPUs on which models' times follow once known is set.
type learningGPUs struct {
	fakeGPUs
	known *atomic.Bool
}

func (g learningGPUs) OnDevice(ctx context.Context, file, device string, maxBatch int, until time.Duration) (*profiler.Profile, error) {
	if !g.known.Load() {
		return nil, errors.New("the database has no operators of it")
	}
	return g.fakeGPUs.OnDevice(ctx, file, device, maxBatch, until)
}

// Functions use a GPU once operators of it have become known, those that serve on cores and those that
// serve on GPUs only.
func TestOperatorsAreLearned(t *testing.T) {
	learning := learningGPUs{known: &atomic.Bool{}}
	tryWith(t, func(o *Options) {
		o.Devices = learning
		o.Backend.(*fakeBackend).Machines = []cluster.Node{{Name: "n1", Total: cluster.Resources{CPU: 4000, GPU: 200, Memory: 64 << 30, GPUMemory: 32 << 30}}}
	}, func(r *rig) {
		r.measured("f", "m")
		r.deploy("w", "m2", func(f *provider.Function) { f.Inference.Device = annotation.DeviceCUDA })
		for _, name := range []string{"f", "w"} {
			r.until("it says what is missing", func() bool { return strings.Contains(r.describe(name).Problem, "no operators") })
		}
		r.Learned() // Of another GPU.
		time.Sleep(10 * time.Minute)
		learning.known.Store(true)
		r.Learned()
		time.Sleep(5 * time.Second)
		for _, name := range []string{"f", "w"} {
			r.mu.Lock()
			all := r.functions[full(name)].artefacts
			if len(all) == 0 || lackDevice(all) || leftOut(all) != "" {
				t.Errorf("%s does not use the GPU", name)
			}
			r.mu.Unlock()
		}
		r.answered("w", "m2")
	})
}

// twoKinds are GPUs of two kinds. The times are known on the first only.
type twoKinds struct{ fakeGPUs }

func (twoKinds) Devices() []string { return []string{"GPU, driver 1", "other, driver 1"} }

func (g twoKinds) OnDevice(ctx context.Context, file, device string, maxBatch int, until time.Duration) (*profiler.Profile, error) {
	if device != "GPU, driver 1" {
		return nil, errors.New("nobody has measured it")
	}
	return g.fakeGPUs.OnDevice(ctx, file, device, maxBatch, until)
}

// A model whose times are known on one kind of GPU has no instances on another, and its function says so.
func TestOneOfTwoKinds(t *testing.T) {
	tryWith(t, func(o *Options) {
		o.Devices = twoKinds{}
		n := cluster.Node{Name: "n1", Total: cluster.Resources{CPU: 4000, GPU: 200, Memory: 64 << 30, GPUMemory: 32 << 30}}
		for _, kind := range []string{"other, driver 1", "GPU, driver 1"} {
			total := cluster.Resources{GPU: 100, GPUMemory: 16 << 30}
			n.Devices = append(n.Devices, cluster.DeviceRoom{UUID: kind, Kind: kind, Total: total, Free: total})
		}
		o.Backend.(*fakeBackend).Machines = []cluster.Node{n}
	}, func(r *rig) {
		r.measured("f", "slow", func(f *provider.Function) { f.Inference.Device = annotation.DeviceCUDA })
		r.load("f", 20*time.Millisecond, 10*time.Second)
		if problem := r.describe("f").Problem; !strings.Contains(problem, "on other, driver 1: nobody has measured it") {
			t.Errorf("it says %q", problem)
		}
		for _, in := range r.backend.living() {
			if in.Device() != "GPU, driver 1" {
				t.Errorf("an instance is on %q", in.Device())
			}
		}
		if len(r.backend.living()) == 0 {
			t.Error("nothing serves")
		}
	})
}

// Variants that were made since a function's deployment serve on while it is prepared for a GPU that is
// new.
func TestLateGPUKeepsVariants(t *testing.T) {
	late, g := lateGPUs{come: &atomic.Bool{}}, &generator{}
	tryWith(t, func(o *Options) { o.Bundles, o.Improver, o.Devices = g, g, late }, func(r *rig) {
		r.measured("f", "net", generates)
		time.Sleep(11 * time.Minute)
		const both = "precise of precise, slim of precise"
		if got := r.titles("f"); got != both {
			t.Fatalf("before: %s", got)
		}
		late.come.Store(true)
		for range 30_000 {
			if time.Sleep(time.Millisecond); r.titles("f") != both {
				t.Fatalf("meanwhile: %s", r.titles("f"))
			}
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, a := range r.functions[full("f")].artefacts {
			if len(a.profile.DeviceShares()) == 0 {
				t.Errorf("%s does not use the GPU", a.Name)
			}
		}
	})
}

// A replica that follows uses the times on a GPU that the leader has found, and finds them itself once it
// leads.
func TestFollowersAndLateGPUs(t *testing.T) {
	late := lateGPUs{come: &atomic.Bool{}}
	together(t, func(o *Options) { o.Devices = late }, func(leader, follower *replica) {
		uses := func(r *replica, name string) func() bool {
			return func() bool {
				r.Controller.mu.Lock()
				defer r.Controller.mu.Unlock()
				return !lackDevice(r.functions[full(name)].artefacts)
			}
		}
		both(leader, follower, "f", "m")
		late.come.Store(true)
		leader.until("the leader knows the times", uses(leader, "f"))
		follower.until("the other one knows them", uses(follower, "f"))
		// This one is deployed at the follower alone, as if the leader were gone.
		follower.deploy("g", "m", func(f *provider.Function) { f.Inference.MaxBatch = 4 })
		time.Sleep(followTimeout)
		follower.until("measured", func() bool { return follower.describe("g").Measured })
		if uses(follower, "g")() {
			t.Error("it finds them while another replica leads")
		}
		leader.leads.Store(false)
		follower.leads.Store(true)
		follower.until("it finds them", uses(follower, "g"))
	})
}

// A GPU that a model should use and cannot is named in the function's status, while cores serve it. A
// function that may run there only is refused.
func TestUnusableGPU(t *testing.T) {
	tryWith(t, func(o *Options) { o.Devices = fakeGPUs{"the library is missing"} }, func(r *rig) {
		r.measured("f", "m")
		r.answered("f", "m")
		r.until("the status says why", func() bool {
			s, _ := r.Status(full("f"))
			return s.Problem == "the model does not use every GPU that it could: on GPU, driver 1: the library is missing" && s.Slight && s.AvailableReplicas > 0
		})
		_, err := r.Deploy(t.Context(), r.function("g", "m", func(f *provider.Function) { f.Inference.Device = annotation.DeviceCUDA }))
		if err == nil || !strings.Contains(err.Error(), annotation.InferDevice) || !strings.Contains(err.Error(), "the library is missing") {
			t.Errorf("%v", err)
		}
	})
}

// com.openfaas.infer.device decides where a model runs.
func TestDevices(t *testing.T) {
	on := func(device string) func(*provider.Function) {
		return func(f *provider.Function) { f.Inference.Device = device }
	}
	withGPUs(t, func(r *rig) {
		r.measured("c", "m", on(annotation.DeviceCPU))
		r.measured("g", "m", on(annotation.DeviceCUDA))
		r.answered("c", "m")
		r.answered("g", "m")
		for _, in := range r.backend.living() {
			if isGPU := strings.HasPrefix(in.Function, "g."); (in.Config.GPU > 0) != isGPU {
				t.Errorf("%s has %v", in.Function, in.Config)
			}
		}
		r.measured("a", "m")
		r.until("both kinds are known", func() bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			gpu, cpu := false, false
			for _, c := range r.functions[full("a")].artefacts[0].candidates {
				gpu, cpu = gpu || c.Config.GPU > 0, cpu || c.Config.GPU == 0
			}
			return gpu && cpu
		})
	})
}

// Without GPUs a function that needs one is refused.
func TestNoDevice(t *testing.T) {
	try(t, func(r *rig) {
		_, err := r.Deploy(t.Context(), r.function("f", "m", func(f *provider.Function) { f.Inference.Device = annotation.DeviceCUDA }))
		if err == nil || !strings.Contains(err.Error(), annotation.InferDevice) {
			t.Errorf("%v", err)
		}
	})
}
