package nodeagent

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/faas-infer/faas-infer/e2e/dgx"
	"github.com/faas-infer/faas-infer/gpu"
	"github.com/faas-infer/faas-infer/gpu/device"
)

// machine is a DGX with an agent that is asked by hand.
type machine struct {
	*dgx.Machine
	*Agent
	t    *testing.T
	node *corev1.Node
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	program, err := dgx.Control(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{Machine: dgx.New(), t: t, node: &corev1.Node{}}
	m.Agent = m.another(program, t.TempDir())
	t.Cleanup(func() {
		if err := m.stop(); err != nil {
			t.Error(err)
		}
		m.losses.watching.Wait()
	})
	return m
}

// another is an agent of the same machine that knows nothing yet.
func (m *machine) another(program, dir string) *Agent {
	return &Agent{Share: true, Every: time.Second, Log: zerolog.Nop(), MPS: device.MPSOptions{Program: program, Directory: dir},
		Read:   func() (gpu.Inventory, error) { return device.Read(m.Machine) },
		losses: &losses{changed: make(chan struct{}, 1), why: map[string]string{}}}
}

// now is what the agent publishes now, as the provider reads it.
func (m *machine) now() gpu.Inventory {
	m.t.Helper()
	i, err := gpu.Parse(m.inventory(m.t.Context(), m.node).String())
	if err != nil {
		m.t.Fatal(err)
	}
	return i
}

// soon waits until what the agent publishes is so.
func (m *machine) soon(what string, is func(gpu.Inventory) bool) gpu.Inventory {
	m.t.Helper()
	tick := time.Tick(10 * time.Millisecond)
	for deadline := time.Now().Add(time.Minute); ; <-tick {
		i := m.now()
		if is(i) {
			return i
		}
		if time.Now().After(deadline) {
			m.t.Fatalf("not within a minute: %s: %s", what, i)
		}
	}
}

// daemonOf is the process of a GPU's daemon.
func (m *machine) daemonOf(uuid string) int {
	m.t.Helper()
	pid, err := m.MPS.Of(uuid).PID()
	if err != nil {
		m.t.Fatal(err)
	}
	return pid
}

// lost says why a GPU is lost, "missing" if it is not listed.
func lost(i gpu.Inventory, uuid string) string {
	for _, d := range i.Devices {
		if d.UUID == uuid {
			return d.Lost
		}
	}
	return "missing"
}

// A daemon that dies takes the instances of its own GPU only. The GPU is lost until the daemon serves
// again.
func TestDaemonOfOneGPU(t *testing.T) {
	m := newMachine(t)
	i := m.now()
	a, b := i.Devices[0].UUID, i.Devices[1].UUID
	was, other := m.daemonOf(a), m.daemonOf(b)
	broken := filepath.Join(m.MPS.Of(a).Pipes(), "broken")
	if err := os.WriteFile(broken, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(was, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	i = m.soon("the GPU is lost", func(i gpu.Inventory) bool { return lost(i, a) != "" })
	if percent, _ := i.Total(); percent != 700 || lost(i, b) != "" || i.Sharing != gpu.MPS {
		t.Errorf("%s", i)
	}
	if err := os.Remove(broken); err != nil {
		t.Fatal(err)
	}
	m.soon("it is back", func(i gpu.Inventory) bool { return lost(i, a) == "" })
	if m.daemonOf(b) != other || m.daemonOf(a) == was {
		t.Error("not just the daemon that died was started again")
	}
}

// A daemon that leaves two checks unanswered goes on.
func TestSilentDaemon(t *testing.T) {
	m := newMachine(t)
	uuid := m.now().Devices[0].UUID
	was := m.daemonOf(uuid)
	silent := func(questions string) {
		if err := os.WriteFile(filepath.Join(m.MPS.Of(uuid).Pipes(), "silent"), []byte(questions), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	silent("2")
	for range 4 {
		if i := m.now(); lost(i, uuid) != "" || m.daemonOf(uuid) != was {
			t.Fatalf("%s", i)
		}
	}
	silent("9")
	m.soon("it is started again", func(i gpu.Inventory) bool { return syscall.Kill(was, 0) != nil })
}

// A GPU that the driver does not list any more is lost, not forgotten: the provider gives up its instances.
// That holds for the only GPU of a node, and for an agent that starts after the fault.
func TestFallenOff(t *testing.T) {
	m := newMachine(t)
	i := m.now()
	uuid := i.Devices[3].UUID
	m.node.ObjectMeta = metav1.ObjectMeta{Annotations: map[string]string{gpu.InventoryAnnotation: i.String()}}
	m.Devices = []string{"3"}
	m.Lose(3)
	i = m.now()
	if why := lost(i, uuid); !strings.Contains(why, "GPU 3") || len(i.Devices) != 8 || i.Sharing != gpu.None {
		t.Errorf("%q, %s", why, i)
	}
	m.Devices = nil
	if percent, _ := m.now().Total(); percent != 700 {
		t.Errorf("the others have %d %%", percent)
	}
	first := m.Agent
	m.Agent = m.another(m.MPS.Program, t.TempDir())
	if why := lost(m.now(), uuid); !strings.Contains(why, "GPU 3") {
		t.Errorf("the next agent: %q", why)
	}
	if err := first.stop(); err != nil {
		t.Error(err)
	}
	for n := range 8 {
		m.Lose(n)
	}
	if i = m.now(); len(i.Devices) != 8 || lost(i, uuid) == "" || lost(i, i.Devices[0].UUID) == "" || i.Sharing != gpu.None {
		t.Errorf("%s", i)
	}
	for n := range 8 {
		m.Fail(n, 0)
	}
	if percent, _ := m.soon("all work again", func(i gpu.Inventory) bool { return lost(i, uuid) == "" }).Total(); percent != 800 {
		t.Errorf("%d %%", percent)
	}
}

// enumerate makes the driver list the first n GPUs only.
func (m *machine) enumerate(n int) {
	m.DeviceGetCountFunc = func() (int, nvml.Return) { return n, nvml.SUCCESS }
}

// A GPU that was removed is lost, and so are all where the driver finds none or does not run. An error of the
// driver says nothing of any GPU, and neither does a container without its library.
func TestRemoved(t *testing.T) {
	m := newMachine(t)
	i := m.now()
	m.node.ObjectMeta = metav1.ObjectMeta{Annotations: map[string]string{gpu.InventoryAnnotation: i.String()}}
	uuid := i.Devices[7].UUID
	m.enumerate(7)
	i = m.now()
	percent, _ := i.Total()
	if why := lost(i, uuid); why != "the driver does not list it any more" || len(i.Devices) != 8 || percent != 700 {
		t.Errorf("%q, %s", why, i)
	}
	begin := m.InitFunc
	fails := func(r nvml.Return) func() { return func() { m.InitFunc = func() nvml.Return { return r } } }
	for what, c := range map[string]struct {
		happens func()
		lost    int
	}{
		"removed":    {func() { m.enumerate(0) }, 8},
		"not loaded": {fails(nvml.ERROR_DRIVER_NOT_LOADED), 8},
		"unknown":    {fails(nvml.ERROR_UNKNOWN), 0},
		"no library": {fails(nvml.ERROR_LIBRARY_NOT_FOUND), 0},
	} {
		c.happens()
		for _, a := range []*Agent{m.Agent, m.another(m.MPS.Program, t.TempDir())} { // The next one has read the annotation.
			i, gone := a.inventory(t.Context(), m.node), 0
			for _, d := range i.Devices {
				if d.Lost != "" {
					gone++
				}
			}
			if gone != c.lost || len(i.Devices) != 8 || len(i.Usable()) > 0 || i.Reason == "" {
				t.Errorf("%s: %d are lost: %s", what, gone, i)
			}
		}
		m.InitFunc = begin
		m.enumerate(8)
	}
	if i = m.now(); lost(i, uuid) != "" || len(i.Shareable()) != 8 {
		t.Errorf("%s", i)
	}
}

// A node without an annotation has no GPU if the library is missing.
func TestNoLibrary(t *testing.T) {
	m := newMachine(t)
	m.InitFunc = func() nvml.Return { return nvml.ERROR_LIBRARY_NOT_FOUND }
	if i := m.now(); len(i.Devices) > 0 || i.Sharing != gpu.None || !strings.Contains(i.Reason, gpu.ErrNone.Error()) {
		t.Errorf("%s", i)
	}
}

// A MIG instance that an administrator removes is forgotten, also while another GPU is lost. One whose GPU is
// lost is lost with it.
func TestRemovedInstance(t *testing.T) {
	m := newMachine(t)
	kept, removed := m.Divide(1, 3, 4), m.Divide(2, 7)
	m.now()
	m.Lose(1)
	m.Device(2).SetMigMode(nvml.DEVICE_MIG_DISABLE)
	i := m.now()
	if lost(i, removed[0]) != "missing" || lost(i, m.Device(2).UUID) != "" || !strings.Contains(lost(i, kept[1]), "GPU 1") {
		t.Errorf("%s", i)
	}
	if percent, _ := i.Total(); percent != 700 {
		t.Errorf("%d %%", percent)
	}
}

// The rest of the GPUs that the device plugin gave to the agent goes on when one is lost, also while the plugin still counts it.
func TestRemovedOfPlugin(t *testing.T) {
	m := newMachine(t)
	m.node, m.Plugin, m.Visible = plugged("8"), true, "0,1,2,3,4,5,6,7"
	m.now()
	m.Lose(7)
	if percent, _ := m.now().Total(); percent != 700 {
		t.Errorf("%d %%", percent)
	}
}

// MIG instances, and GPUs that MPS cannot share, are given out whole if they are among the agent's.
func TestWholeOnes(t *testing.T) {
	m := newMachine(t)
	mig := m.Divide(1, 3, 4)
	old := m.Device(2)
	old.CudaComputeCapability.Major, old.CudaComputeCapability.Minor = 6, 1
	whole := func() (names []string) {
		for _, d := range m.now().Usable() {
			if d.Whole {
				names = append(names, d.UUID)
			}
		}
		return names
	}
	for _, c := range []struct {
		devices []string
		plugin  string
		want    []string
		percent int
	}{
		{nil, "", []string{mig[0], mig[1], old.UUID}, 600 + 38 + 51 + 100},
		{[]string{"1"}, "", mig, 38 + 51},
		{[]string{"0", mig[1]}, "", mig[1:], 100 + 51},
		{nil, mig[0], mig[:1], 38},
		{nil, "0", nil, 100},
	} {
		m.Agent.Devices, m.Plugin, m.Visible = c.devices, c.plugin != "", c.plugin
		percent, _ := m.now().Total()
		if got := whole(); fmt.Sprint(got) != fmt.Sprint(c.want) || percent != c.percent {
			t.Errorf("%v %q: %v, %d %%", c.devices, c.plugin, got, percent)
		}
	}
	// The plugin may give a GPU to another pod once the agent has ended; without a plugin nobody gets it.
	for visible, want := range map[string]int{mig[1]: 1, "0": 1, "": 0} {
		m.Agent.Devices, m.Plugin, m.Visible = nil, visible != "", visible
		gone := 0
		for _, d := range m.last().Devices {
			if d.Lost != "" {
				gone++
			}
		}
		if i := m.last(); gone != want || len(i.Usable()) > 0 {
			t.Errorf("%q: %d are lost: %s", visible, gone, i)
		}
	}
	m.Agent.Devices, m.Plugin, m.node = nil, false, plugged("8")
	if i := m.now(); len(i.Usable()) > 0 || !strings.Contains(i.Reason, "given out twice") {
		t.Errorf("%s", i)
	}
	m.Share = false
	if i := m.now(); len(i.Usable()) > 0 {
		t.Errorf("%s", i)
	}
}

// Without MPS each GPU goes to one instance, as on one machine. How GPUs are given out does not change while
// they are, and not because a program disappears later.
func TestWithoutMPS(t *testing.T) {
	m := newMachine(t)
	program := m.MPS.Program
	m.MPS.Program = filepath.Join(t.TempDir(), "late")
	appear := func() {
		if err := os.Symlink(program, m.MPS.Program); err != nil {
			t.Fatal(err)
		}
	}
	whole := func() {
		t.Helper()
		i := m.now()
		if percent, _ := i.Total(); percent != 800 || len(i.Shareable()) > 0 || !strings.Contains(i.Devices[0].Unshareable, "late") {
			t.Errorf("%s", i)
		}
	}
	whole()
	appear()
	whole()
	free := m.node
	m.node = plugged("8") // Sharing is withdrawn for a while, and instances keep their GPUs.
	for range 2 {
		if i := m.now(); len(i.Usable()) > 0 || m.withoutMPS == "" {
			t.Errorf("%q: %s", m.withoutMPS, i)
		}
	}
	m.node = free
	whole()
	begin := m.InitFunc
	for _, r := range []nvml.Return{nvml.ERROR_UNKNOWN, nvml.ERROR_LIBRARY_NOT_FOUND} {
		m.InitFunc = func() nvml.Return { return r }
		for range 2 {
			if i := m.now(); len(i.Usable()) > 0 {
				t.Errorf("%v: %s", r, i)
			}
		}
		m.InitFunc = begin
		whole() // Instances may have kept theirs.
	}
	m.enumerate(0)
	m.now()
	m.enumerate(8)
	if i := m.now(); len(i.Shareable()) != 8 || i.Devices[0].Whole {
		t.Errorf("the next look: %s", i)
	}
	if err := os.Remove(m.MPS.Program); err != nil {
		t.Fatal(err)
	}
	m.enumerate(0)
	m.now()
	m.enumerate(8)
	if i := m.now(); len(i.Shareable()) != 8 {
		t.Errorf("%s", i)
	}
	appear()
}

// Each daemon has a server before an instance computes, and again after a fatal error. A daemon that starts none
// serves nevertheless.
func TestServerAhead(t *testing.T) {
	m := newMachine(t)
	m.User = 65532
	i := m.now()
	servers := func(n int) string {
		text, err := os.ReadFile(filepath.Join(m.MPS.Of(i.Devices[n].UUID).Pipes(), "servers"))
		if err != nil {
			t.Error(err)
		}
		return string(text)
	}
	for n := range i.Devices {
		if got := servers(n); got != "65532\n" {
			t.Errorf("GPU %d has servers of %q", n, got)
		}
	}
	m.now()
	if got := servers(0); got != "65532\n" {
		t.Errorf("another look starts another: %q", got)
	}
	pipes := m.MPS.Of(i.Devices[0].UUID).Pipes()
	if err := os.Remove(filepath.Join(pipes, "servers")); err != nil { // It has ended.
		t.Fatal(err)
	}
	m.now()
	if got := servers(0); got != "65532\n" {
		t.Errorf("after a fault: %q", got)
	}
	if err := os.Rename(filepath.Join(pipes, "servers"), filepath.Join(pipes, "serverless")); err != nil {
		t.Fatal(err)
	}
	if percent, _ := m.now().Total(); percent != 800 || m.daemons[i.Devices[0].UUID].serverless == "" {
		t.Errorf("%d %%", percent)
	}
}

// The program comes with the driver: an agent that starts before it looks once there is one.
func TestMPSAfterTheAgent(t *testing.T) {
	m := newMachine(t)
	program := m.MPS.Program
	m.MPS.Program = filepath.Join(t.TempDir(), "late")
	m.enumerate(0)
	if i := m.now(); len(i.Usable()) > 0 || m.withoutMPS != "" {
		t.Errorf("%q: %s", m.withoutMPS, i)
	}
	if err := os.Symlink(program, m.MPS.Program); err != nil {
		t.Fatal(err)
	}
	m.enumerate(8)
	if i := m.now(); len(i.Shareable()) != 8 {
		t.Errorf("%s", i)
	}
}

// Whatever fails, the agent says that just the GPUs are lost that do not work, and no other daemon ends.
func TestFaults(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { faults(t, rand.New(rand.NewPCG(seed, 22))) })
	}
}

func faults(t *testing.T, random *rand.Rand) {
	m := newMachine(t)
	m.Watch = func(ctx context.Context, o device.WatchOptions) error {
		o.Every = 20 * time.Millisecond
		return device.Watch(ctx, m.Machine, o)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	m.inventory(ctx, m.node) // Its watch ends with ctx.
	uuids := make([]string, 8)
	daemons := make([]int, 8)
	for n := range uuids {
		uuids[n] = m.Device(n).UUID
		daemons[n] = m.daemonOf(uuids[n])
	}
	bad := map[int]string{}
	for _, n := range random.Perm(8)[:5] {
		m.XID(n, 31) // A process's own fault ends nothing.
		switch random.IntN(4) {
		case 0:
			bad[n] = "XID 95"
			m.XID(n, 95)
		case 1:
			bad[n] = "ERROR_GPU_IS_LOST"
			m.Lose(n)
		case 2:
			bad[n] = "MPS daemon"
			if err := os.WriteFile(filepath.Join(m.MPS.Of(uuids[n]).Pipes(), "broken"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := syscall.Kill(daemons[n], syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		case 3: // It is started again.
			if err := syscall.Kill(daemons[n], syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			m.soon("its daemon is back", func(gpu.Inventory) bool {
				pid, err := m.MPS.Of(uuids[n]).PID()
				return err == nil && pid != daemons[n]
			})
			daemons[n] = m.daemonOf(uuids[n])
		}
		if bad[n] == "ERROR_GPU_IS_LOST" {
			bad[n] = "lost"
		}
		i := m.soon("it is lost", func(i gpu.Inventory) bool {
			return strings.Contains(strings.ToLower(lost(i, uuids[n])), strings.ToLower(bad[n]))
		})
		if len(i.Devices) != 8 {
			t.Fatalf("%d GPUs are listed", len(i.Devices))
		}
		for k, uuid := range uuids {
			if why := lost(i, uuid); (why != "") != (bad[k] != "") {
				t.Errorf("GPU %d is %q; want %q", k, why, bad[k])
			}
			if bad[k] == "" && m.daemonOf(uuid) != daemons[k] {
				t.Errorf("the daemon of GPU %d was started again after a fault of %d", k, n)
			}
		}
		if percent, _ := i.Total(); percent != 100*(8-len(bad)) {
			t.Errorf("%d %% with %d lost GPUs", percent, len(bad))
		}
		if bad[n] == "" {
			delete(bad, n)
		}
	}
}
