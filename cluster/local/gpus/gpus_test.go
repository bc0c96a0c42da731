package gpus

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/e2e/dgx"
	"github.com/faas-infer/faas-infer/gpu"
	"github.com/faas-infer/faas-infer/gpu/device"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Instances get what other processes leave of a shared GPU's memory. A whole one is theirs.
func TestBeside(t *testing.T) {
	r := newRig(t)
	before := r.open(t)
	r.options.Beside = 1 << 30
	g := r.open(t)
	for k, d := range g.Inventory().Devices {
		if want := before.Inventory().Devices[k].Memory - 1<<30; d.Memory != want || d.Whole {
			t.Errorf("%+v, not %d bytes", d, want)
		}
	}
	r.options.MPS, r.options.Dir = "/no/such/program", t.TempDir()
	for k, d := range r.open(t).Inventory().Devices {
		if want := before.Inventory().Devices[k].Memory; d.Memory != want || !d.Whole {
			t.Errorf("%+v, not %d bytes", d, want)
		}
	}
}

// A driver that is loaded after the provider's start gives its GPUs to instances, with daemons.
func TestLateDriver(t *testing.T) {
	r := newRig(t)
	var loaded atomic.Bool
	start := r.InitFunc
	r.InitFunc = func() nvml.Return {
		if !loaded.Load() {
			return nvml.ERROR_LIBRARY_NOT_FOUND
		}
		return start()
	}
	r.options.Names = nil
	g := r.open(t)
	if g.Present() || len(g.Inventory().Devices) > 0 {
		t.Fatalf("%+v without a driver", g.Inventory())
	}
	loaded.Store(true)
	for end := time.Now().Add(time.Minute); !g.Present(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the GPUs are not found")
		}
	}
	all := g.Inventory().Devices
	if len(all) != 8 || all[0].Whole {
		t.Fatalf("%+v", all)
	}
	if pid, err := g.Daemon(all[7].UUID); err != nil || pid == 0 {
		t.Errorf("daemon %d, %v", pid, err)
	}
	if env := g.Env(&cluster.InstanceSpec{Kind: cluster.Model, Devices: []string{all[0].UUID}, Config: cluster.Config{Resources: cluster.Resources{GPU: 20}}}); !slices.Contains(env, "CUDA_VISIBLE_DEVICES="+all[0].UUID) {
		t.Errorf("%q", env)
	}
}

// A daemon that cannot be followed is ended with what it started, and not waited for while it lives.
func TestAbandon(t *testing.T) {
	c := exec.Command("sh", "-c", "sleep 3600 & wait")
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	group := c.Process.Pid
	abandon(c) // It would take an hour otherwise.
	for end := time.Now().Add(time.Minute); syscall.Kill(-group, 0) == nil; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a process of it is left")
		}
	}
}

// rig is a DGX and what was reported of it.
type rig struct {
	*dgx.Machine
	options Options
	mu      sync.Mutex
	failed  []string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{Machine: dgx.New()}
	program, err := dgx.Control(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r.options = Options{
		Library: r.Machine, Names: []string{"0", "1"}, Dir: filepath.Join(t.TempDir(), "gpus"), MPS: program, Every: 50 * time.Millisecond, Logger: zerolog.Nop(),
		Failed: func(device, why string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.failed = append(r.failed, device+" "+why)
		},
	}
	return r
}

func (r *rig) open(t *testing.T) *GPUs {
	t.Helper()
	g, err := Open(t.Context(), r.options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close(false) })
	return g
}

func (r *rig) seen() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.failed, "; ")
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not %s", what)
		}
	}
}

func model(device string, percent int) *cluster.InstanceSpec {
	return &cluster.InstanceSpec{Devices: []string{device}, Config: cluster.Config{Batch: 1, Resources: cluster.Resources{CPU: 500, GPU: percent, GPUMemory: 1 << 30}}}
}

// Each shared GPU has a daemon of its own, which sees only that GPU. Instances get their share's
// environment, and nothing of the others'.
func TestShares(t *testing.T) {
	r := newRig(t)
	g := r.open(t)
	a, b := r.Device(0).UUID, r.Device(1).UUID
	if rooms := g.Inventory().Rooms(nil); len(rooms) != 2 || rooms[0].Whole || rooms[1].UUID != b {
		t.Fatalf("%+v", rooms)
	}
	for _, uuid := range []string{a, b} {
		if pipes := g.daemons[uuid].options.Pipes(); g.Inventory().On(uuid, 100, 0).PipeDirectory != pipes {
			t.Errorf("the inventory does not say that the daemon of %s listens in %s", uuid, pipes)
		}
		env, err := os.ReadFile(filepath.Join(g.daemons[uuid].options.Pipes(), "environment"))
		if err != nil || !strings.Contains(string(env), "CUDA_VISIBLE_DEVICES="+uuid+"\n") {
			t.Errorf("%s, %v", env, err)
		}
	}
	env := g.Env(model(b, 30))
	for _, want := range []string{"CUDA_VISIBLE_DEVICES=" + b, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30", "CUDA_MPS_PIPE_DIRECTORY=" + g.daemons[b].options.Pipes(), "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=1024M"} {
		if !slices.Contains(env, want) {
			t.Errorf("%q lacks %s", env, want)
		}
	}
	if env := g.Env(&cluster.InstanceSpec{}); !slices.Equal(env, []string{"CUDA_VISIBLE_DEVICES=", "NVIDIA_VISIBLE_DEVICES=void"}) {
		t.Errorf("without a share: %q", env)
	}
	if env := g.Env(&cluster.InstanceSpec{Kind: cluster.Process, Devices: []string{a, b}}); !slices.Equal(env, []string{"CUDA_VISIBLE_DEVICES=" + a + "," + b, "NVIDIA_VISIBLE_DEVICES=" + a + "," + b}) {
		t.Errorf("two whole ones: %q", env)
	}
}

// A provider adopts the daemons that an earlier one left, and ends them once no instance uses them.
func TestAdoption(t *testing.T) {
	r := newRig(t)
	first := r.open(t)
	uuid := r.Device(0).UUID
	was := first.daemons[uuid].watch.Identity()
	if why := first.Stale(model(uuid, 10)); !strings.Contains(why, "while no provider ran") {
		t.Errorf("an instance from before the daemon goes on: %q", why)
	}
	if err := first.Close(true); err != nil {
		t.Fatal(err)
	}
	second := r.open(t)
	if is := second.daemons[uuid].watch.Identity(); is != was {
		t.Errorf("%+v is not the daemon of before, %+v", is, was)
	}
	if why := second.Stale(model(uuid, 10)); why != "" {
		t.Errorf("an instance of the adopted daemon is stopped: %s", why)
	}
	// Its record is lost, but the daemon names its process itself.
	if err := os.Remove(second.daemons[uuid].record); err != nil {
		t.Fatal(err)
	}
	if err := second.Close(true); err != nil {
		t.Fatal(err)
	}
	third := r.open(t)
	if is := third.daemons[uuid].watch.Identity(); is != was {
		t.Errorf("without a record %+v is not the daemon of before", is)
	}
	if err := third.Close(false); err != nil || was.Alive() {
		t.Errorf("it is alive: %v, %v", was.Alive(), err)
	}
	if left, err := os.ReadDir(r.options.Dir); err != nil || len(left) != 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}

// A daemon that dies while no provider runs is replaced, and its instances are stale.
func TestDeathBetweenProviders(t *testing.T) {
	r := newRig(t)
	first := r.open(t)
	uuid := r.Device(1).UUID
	was := first.daemons[uuid].watch.Identity()
	if err := first.Close(true); err != nil {
		t.Fatal(err)
	}
	kill(t, was.PID)
	second := r.open(t)
	if is := second.daemons[uuid].watch.Identity(); is == was {
		t.Error("the dead daemon was adopted")
	}
	if second.Stale(model(uuid, 10)) == "" || second.Stale(model(r.Device(0).UUID, 10)) != "" {
		t.Error("not just the instances of the dead daemon are stale")
	}
}

// A pid file from before a restart of the machine may name the daemon of another GPU, which must live.
func TestPidOfAnotherDaemon(t *testing.T) {
	r := newRig(t)
	first := r.open(t)
	a, b := first.daemonOf("GPU-other"), first.daemons[r.Device(1).UUID]
	was := b.watch.Identity()
	if err := os.MkdirAll(a.options.Pipes(), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(a.options.Pipes(), "nvidia-cuda-mps-control.pid"), []byte(strconv.Itoa(was.PID)), 0o600); err != nil {
		t.Fatal(err)
	}
	if id, err := a.identity(); err == nil {
		t.Errorf("the daemon is taken for %+v, that of another GPU", id)
	}
	if _, err := b.identity(); err != nil || !was.Alive() {
		t.Errorf("the other daemon: %v, alive %v", err, was.Alive())
	}
}

// The MPS daemon of another user is left alone, and the reason says what to do. Its GPU goes to one instance.
func TestDaemonOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		if err := foreign(1); !errors.Is(err, errForeign) {
			t.Errorf("the process of root: %v", err)
		}
		return // Only root can start the process of another user.
	}
	r := newRig(t)
	uuid := r.Device(0).UUID
	o := device.MPSOptions{Directory: r.options.Dir}.Of(uuid)
	c := exec.Command("/bin/sh", "-c", "read line", device.MPSProgram)
	c.Env, c.SysProcAttr = []string{pipesEnv + "=" + o.Pipes()}, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	input, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Start(), os.MkdirAll(o.Pipes(), 0o755)); err != nil {
		t.Fatal(err)
	}
	defer c.Wait()
	defer input.Close()
	if err := os.WriteFile(filepath.Join(o.Pipes(), device.MPSProgram+".pid"), []byte(strconv.Itoa(c.Process.Pid)), 0o600); err != nil {
		t.Fatal(err)
	}
	all := r.open(t).Inventory().Devices
	if why := all[0].Unshareable; !all[0].Whole || !strings.Contains(why, "another user's MPS daemon") || !strings.Contains(why, "of user 65534") || all[1].Whole {
		t.Errorf("%+v", all)
	}
	if err := syscall.Kill(c.Process.Pid, 0); err != nil {
		t.Errorf("it was ended: %v", err)
	}
}

// A daemon that leaves a check unanswered goes on, and so do its instances. One that answers none any
// more is started again.
func TestSilence(t *testing.T) {
	r := newRig(t)
	g := r.open(t)
	d := g.daemons[r.Device(0).UUID]
	was := d.watch.Identity()
	silent := filepath.Join(d.options.Pipes(), "silent")
	asked := func(times int) { // The stand-in counts the questions that it leaves unanswered.
		until(t, "asked", func() bool {
			text, err := os.ReadFile(silent + ".asked")
			return err == nil && strings.Count(string(text), "\n") >= times
		})
	}
	if err := os.WriteFile(silent, []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	asked(1)
	until(t, "answering", func() bool { return d.options.Healthy(t.Context()) == nil })
	if seen := r.seen(); seen != "" || !was.Alive() {
		t.Errorf("after one silence: %s, alive %v", seen, was.Alive())
	}
	if err := os.WriteFile(silent, []byte("9"), 0o600); err != nil {
		t.Fatal(err)
	}
	until(t, "failed", func() bool { return r.seen() != "" })
}

func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_, _ = syscall.Wait4(pid, nil, 0, nil)
}

// A daemon that dies is started again. Until it serves, nothing goes to its GPU; the other GPU goes on.
func TestRestart(t *testing.T) {
	r := newRig(t)
	g := r.open(t)
	a, b := r.Device(0).UUID, r.Device(1).UUID
	broken := filepath.Join(g.daemons[a].options.Pipes(), "broken")
	if err := os.WriteFile(broken, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	lost := func(uuid string) string {
		for _, d := range g.Inventory().Devices {
			if d.UUID == uuid {
				return d.Lost
			}
		}
		return "missing"
	}
	was := g.daemons[a].watch.Identity()
	if err := syscall.Kill(was.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "paused", func() bool { return strings.Contains(lost(a), "no such device") })
	if seen := r.seen(); !strings.HasPrefix(seen, a+" the MPS daemon of its GPU failed") || strings.Contains(seen, b) {
		t.Errorf("failed: %s", seen)
	}
	if lost(b) != "" || g.Why(model(a, 10)) == "" || g.Why(model(b, 10)) != "" {
		t.Errorf("%q, %q, %q", lost(b), g.Why(model(a, 10)), g.Why(model(b, 10)))
	}
	if err := os.Remove(broken); err != nil {
		t.Fatal(err)
	}
	until(t, "serving again", func() bool { return lost(a) == "" })
	if err := g.daemons[a].options.Healthy(t.Context()); err != nil {
		t.Error(err)
	}
}

// Without MPS the GPUs are given out whole, and MIG instances are devices of their own.
func TestWhole(t *testing.T) {
	r := newRig(t)
	uuids := r.Divide(1, 3, 4)
	r.Divide(2) // Without instances nothing can compute on it.
	r.options.Names, r.options.MPS = []string{"0", "1", "2"}, filepath.Join(t.TempDir(), "missing")
	g := r.open(t)
	rooms := g.Inventory().Rooms([]gpu.Held{{Device: uuids[1], Percent: 50}})
	if len(rooms) != 3 || !rooms[0].Whole || rooms[0].Total.GPU != 100 || rooms[1].UUID != uuids[0] || rooms[1].Total.GPU != 38 || !rooms[2].Whole {
		t.Fatalf("%+v", rooms)
	}
	for _, c := range []struct {
		percent int
		want    int
	}{{100, 0}, {90, -1}, {30, 1}, {20, -1}, {50, -1}} {
		if at := cluster.BestDevice(rooms, cluster.Resources{GPU: c.percent}, cluster.Tenant{}); at != c.want {
			t.Errorf("%d %% goes to %d, want %d", c.percent, at, c.want)
		}
	}
	for percent, stale := range map[int]bool{30: true, 100: false} {
		if why := g.Stale(model(rooms[0].UUID, percent)); (why != "") != stale {
			t.Errorf("an instance with %d %% from before: %q", percent, why)
		}
	}
	env := g.Env(model(uuids[0], 30))
	if !slices.Contains(env, "CUDA_VISIBLE_DEVICES="+uuids[0]) || !slices.Contains(env, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100") || strings.Contains(strings.Join(env, " "), "PIPE") {
		t.Errorf("%q", env)
	}
}

// A lost GPU is reported with its XID; the others stay.
func TestLost(t *testing.T) {
	r := newRig(t)
	g := r.open(t)
	r.XID(1, 79)
	until(t, "lost", func() bool { return r.seen() != "" })
	uuid := r.Device(1).UUID
	if seen := r.seen(); seen != uuid+" its GPU "+uuid+" is lost: XID 79: the GPU has fallen off the bus" {
		t.Error(seen)
	}
	if g.Why(model(uuid, 10)) == "" || g.Why(model(r.Device(0).UUID, 10)) != "" || g.Why(model("GPU-gone", 10)) == "" {
		t.Error("not just what is on the lost GPU fails")
	}
}

// A machine without a driver has no GPUs; where some are named, that is an error.
func TestNone(t *testing.T) {
	r := newRig(t)
	r.InitFunc = func() nvml.Return { return nvml.ERROR_LIBRARY_NOT_FOUND }
	if _, err := Open(t.Context(), r.options); err == nil || !strings.Contains(err.Error(), "--gpus 0,1: ") {
		t.Errorf("%v", err)
	}
	r.options.Names = nil
	for _, library := range []nvml.Interface{r.Machine, nil} {
		r.options.Library = library
		if g := r.open(t); g.Present() || g.Env(model("x", 10)) != nil || g.Files(model("x", 10)) != nil {
			t.Errorf("%+v", g.Inventory())
		}
	}
	other := newRig(t)
	other.options.Names = []string{"8"}
	if _, err := Open(t.Context(), other.options); err == nil || !strings.Contains(err.Error(), `no GPU "8"`) {
		t.Errorf("%v", err)
	}
}
