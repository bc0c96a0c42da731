package local

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/local/gpus"
	"github.com/faas-infer/faas-infer/e2e/dgx"
)

// onDGX returns options of a machine with eight GPUs, of which the named ones are used.
func onDGX(t *testing.T, names ...string) (Options, *dgx.Machine) {
	t.Helper()
	m := dgx.New()
	program, err := dgx.Control(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	o := options(t.TempDir(), true)
	o.Total = &cluster.Resources{CPU: 64000, Memory: 1 << 40}
	o.GPUs = gpus.Options{Library: m, Names: names, MPS: program, Every: 100 * time.Millisecond}
	return o, m
}

// shared is an instance of a model with a share of a GPU.
func shared(id string, percent int, memory int64) cluster.InstanceSpec {
	s := spec(id, "plain")
	s.Config.Resources = cluster.Resources{CPU: 100, GPU: percent, GPUMemory: memory}
	return s
}

func nodeOf(t *testing.T, b *Backend) cluster.Node {
	t.Helper()
	nodes, err := b.Nodes(t.Context())
	if err != nil || len(nodes) != 1 {
		t.Fatalf("%+v, %v", nodes, err)
	}
	return nodes[0]
}

// An instance gets its share of one GPU: the one that the plan names, as long as there is room. Its
// environment shows only that. A function cannot choose another by its variables.
func TestSharesOfGPUs(t *testing.T) {
	o, m := onDGX(t, "0", "1")
	b := open(t, o)
	a, c := m.Device(0).UUID, m.Device(1).UUID
	if n := nodeOf(t, b); n.Total.GPU != 200 || n.Total.GPUMemory != 80<<30 || len(n.Devices) != 2 || n.Free.GPU != 200 {
		t.Fatalf("%+v", n)
	}
	first := shared("first", 60, 10<<30)
	first.Env["CUDA_VISIBLE_DEVICES"], first.Devices = "all", []string{c}
	first.Env["NVIDIA_TF32_OVERRIDE"], first.Env["LD_PRELOAD"] = "0", "/evil.so"
	in := begin(t, b, first)
	expect(t, b, "first", cluster.Ready)
	if in.Device() != c {
		t.Errorf("it is on %q, want %q", in.Device(), c)
	}
	environ := ask(t, in, "/environ")
	for _, want := range []string{"CUDA_VISIBLE_DEVICES=" + c, "\nNVIDIA_TF32_OVERRIDE=0\n", "FAAS_INFER_FUNCTION_LD_PRELOAD=/evil.so", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=60", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=10240M"} {
		if !strings.Contains(environ, want) {
			t.Errorf("it lacks %s:\n%s", want, environ)
		}
	}
	if strings.Contains(environ, "=all") || !strings.Contains(environ, "CUDA_MPS_PIPE_DIRECTORY=/") {
		t.Error(environ)
	}
	second := shared("second", 60, 10<<30)
	second.Devices = []string{c} // It has no room any more.
	if in := begin(t, b, second); in.Device() != a {
		t.Errorf("the second is on %q", in.Device())
	}
	expect(t, b, "second", cluster.Ready)
	// 40 % of each are free, and that is 80 % only on paper.
	if _, err := b.Start(t.Context(), shared("third", 50, 1<<30)); !errors.Is(err, ErrNoCapacity) || !strings.Contains(err.Error(), "no single one") {
		t.Errorf("%v", err)
	}
	if n := nodeOf(t, b); n.Free.GPU != 80 || n.Fits(cluster.Resources{GPU: 50}, cluster.Tenant{}) || !n.Fits(cluster.Resources{GPU: 40}, cluster.Tenant{}) {
		t.Errorf("%+v", n)
	}
	plain := begin(t, b, spec("plain", "plain"))
	expect(t, b, "plain", cluster.Ready)
	if environ := ask(t, plain, "/environ"); !strings.Contains(environ+"\n", "CUDA_VISIBLE_DEVICES=\n") {
		t.Errorf("an instance without a share sees GPUs:\n%s", environ)
	}
	// A parked instance gives its share back and takes it again, on its own GPU only.
	if err := b.Park(t.Context(), "first"); err != nil {
		t.Fatal(err)
	}
	third := begin(t, b, shared("third", 50, 1<<30))
	if third.Device() != c {
		t.Errorf("the third is on %q", third.Device())
	}
	if err := b.Resize(t.Context(), "first", first.Config); !errors.Is(err, ErrNoCapacity) {
		t.Errorf("a share that is given out is taken back: %v", err)
	}
}

// A process gets whole GPUs, on which nothing else goes.
func TestWholeGPUs(t *testing.T) {
	o, m := onDGX(t, "0", "1", "2")
	b := open(t, o)
	begin(t, b, shared("model", 10, 1<<30))
	expect(t, b, "model", cluster.Ready)
	train := function(t, "train", "classic", "env")
	train.Config.Resources = cluster.Resources{CPU: 100, GPU: 200}
	in := begin(t, b, train)
	expect(t, b, "train", cluster.Ready)
	want := []string{m.Device(1).UUID, m.Device(2).UUID}
	if !slices.Equal(in.Devices, want) || !strings.Contains(ask(t, in, "/"), "CUDA_VISIBLE_DEVICES="+strings.Join(want, ",")+"\n") {
		t.Errorf("%q", in.Devices)
	}
	if n := nodeOf(t, b); n.Free.GPU != 90 || n.Free.GPUMemory != 39<<30 {
		t.Errorf("%+v", n.Free)
	}
	train.ID = "more"
	train.Config.GPU = 100
	if _, err := b.Start(t.Context(), train); !errors.Is(err, ErrNoCapacity) {
		t.Errorf("%v", err)
	}
}

// The next provider takes over instances, their GPUs and the daemons.
func TestSharesAreTakenOver(t *testing.T) {
	o, m := onDGX(t, "0", "1")
	b, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		s := shared(fmt.Sprint("i", i), 70, 1<<30)
		begin(t, b, s)
		expect(t, b, s.ID, cluster.Ready)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	next := open(t, o)
	if n := nodeOf(t, next); n.Free.GPU != 60 || n.Devices[0].Free.GPU != 30 || n.Devices[1].Free.GPU != 30 {
		t.Errorf("%+v", n)
	}
	instances, err := next.Instances(t.Context())
	if err != nil || len(instances) != 2 || instances[0].Device() != m.Device(0).UUID || instances[1].Device() != m.Device(1).UUID {
		t.Errorf("%+v, %v", instances, err)
	}
	// Where nothing of them is used any more, they stop.
	for _, in := range instances {
		stopNow(t, next, in.ID)
		expect(t, next, in.ID, cluster.Stopping)
		expect(t, next, in.ID, cluster.Exited)
	}
	if err := next.Close(); err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(filepath.Join(next.layout.gpus(), "*")); err != nil || len(left) != 0 {
		t.Errorf("daemons are left: %v, %v", left, err)
	}
}

// Whatever fails, no instance stays on a device that does not work, and no other instance is lost.
func TestFaultsOfGPUs(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { faultsOfGPUs(t, seed) })
	}
}

func faultsOfGPUs(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	o, m := onDGX(t)
	b := open(t, o)
	on := map[cluster.InstanceID]string{}
	for i := range 12 {
		s := shared(fmt.Sprint("i", i), 20+20*r.IntN(3), r.Int64N(8)<<30)
		in, err := b.Start(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		on[in.ID] = in.Device()
		expect(t, b, in.ID, cluster.Ready)
	}
	numbers := map[string]int{}
	for n := range m.Devices {
		numbers[m.Device(n).UUID] = n
	}
	bad := map[string]string{}
	for range 3 {
		used := slices.Sorted(maps.Values(on))
		device := used[r.IntN(len(used))]
		n := numbers[device]
		m.XID(n, 31) // A process's own fault ends nothing.
		switch r.IntN(3) {
		case 0:
			bad[device] = "XID 95"
			m.XID(n, 95)
		case 1:
			bad[device] = "cannot be read"
			m.Lose(n)
		case 2:
			bad[device] = "MPS daemon of its GPU failed"
			killDaemon(t, b, device)
		}
		for slices.Contains(slices.Collect(maps.Values(on)), device) {
			gone(t, b, on, device, bad[device])
		}
	}
	left, err := b.Instances(t.Context())
	if err != nil || len(left) != len(on) {
		t.Fatalf("%d instances are left, want %d: %v", len(left), len(on), err)
	}
	for _, in := range left {
		if in.State != cluster.Ready || on[in.ID] != in.Device() || bad[in.Device()] != "" || strings.Contains(ask(t, in, "/environ"), "refused") {
			t.Errorf("%s is %s on %s, which is %q", in.ID, in.State, in.Device(), bad[in.Device()])
		}
	}
	for _, d := range nodeOf(t, b).Devices {
		if why := bad[d.UUID]; why != "" && !strings.Contains(why, "daemon") && d.Lost == "" {
			t.Errorf("%+v is not lost: %s", d, why)
		}
	}
	if in, err := b.Start(t.Context(), shared("new", 10, 0)); err != nil || bad[in.Device()] != "" && !strings.Contains(bad[in.Device()], "daemon") {
		t.Errorf("a new one is on %q: %v", in.Device(), err)
	}
}

// gone waits until an instance on a device has exited, for the reason that it tells.
func gone(t *testing.T, b *Backend, on map[cluster.InstanceID]string, device, why string) {
	t.Helper()
	select {
	case event := <-b.Events():
		if event.State != cluster.Exited || on[event.ID] != device || !strings.Contains(event.Reason, why) {
			t.Fatalf("%s on %s is %s: %s; want one of %s: %s", event.ID, on[event.ID], event.State, event.Reason, device, why)
		}
		delete(on, event.ID)
	case <-time.After(time.Minute):
		t.Fatalf("instances stay on %s, which failed: %s", device, why)
	}
}

func killDaemon(t *testing.T, b *Backend, device string) {
	t.Helper()
	pid, err := b.GPUs().Daemon(device)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}
