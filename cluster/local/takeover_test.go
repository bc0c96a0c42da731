package local

import (
	"bufio"
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/local/process"
)

// provider starts a provider process, waits until it reports that it has started, and
// returns a function that kills it.
func provider(t *testing.T, role, dir string, bare bool) (kill func()) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	way := "full"
	if bare {
		way = "bare"
	}
	command := exec.Command(self, dir, way)
	command.Env = append(os.Environ(), envRole+"="+role)
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil || line != "started\n" {
		t.Fatalf("the provider said %q, %v", line, err)
	}
	return func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	}
}

func TestInstancesOfAKilledProviderAreTakenOver(t *testing.T) {
	eachWay(t, func(t *testing.T, bare bool) {
		dir := t.TempDir()
		provider(t, "provider", dir, bare)()
		b := open(t, options(dir, bare))
		instances, err := b.Instances(t.Context())
		if err != nil || len(instances) != 2 {
			t.Fatalf("instances %+v, %v", instances, err)
		}
		quick, slow := instances[0], instances[1]
		if quick.ID != "quick" || quick.State != cluster.Ready || quick.ReadyAt.IsZero() || quick.Config.CPU != 500 {
			t.Errorf("the one that was ready: %+v", quick)
		}
		if slow.ID != "slow" || slow.State != cluster.Starting {
			t.Errorf("the one that was starting: %+v", slow)
		}
		if got := ask(t, quick, "/read?file=/dev/null"); got != "<nil>" {
			t.Errorf("it answers %q", got)
		}
		if nodes, err := b.Nodes(t.Context()); err != nil || nodes[0].Free.CPU != 3000 {
			t.Errorf("nodes %+v, %v", nodes, err)
		}
		if err := os.WriteFile(filepath.Join(dir, "begin"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		expect(t, b, "slow", cluster.Ready)

		if err := syscall.Kill(pidOf(t, b, "slow"), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		exited := expect(t, b, "slow", cluster.Exited)
		// Kernels before 6.15 do not tell how somebody else's child ended.
		if exited.Reason != "killed by signal 9" && !strings.HasPrefix(exited.Reason, "exited") {
			t.Errorf("reason %q", exited.Reason)
		}
		if err := b.Stop(t.Context(), "quick"); err != nil {
			t.Fatal(err)
		}
		nothingLeft(t, b)
		expect(t, b, "quick", cluster.Stopping)
		if exited := expect(t, b, "quick", cluster.Exited); exited.Reason != "stopped" {
			t.Errorf("reason %q", exited.Reason)
		}
	})
}

func TestClosedBackendsInstancesLiveOn(t *testing.T) {
	eachWay(t, func(t *testing.T, bare bool) {
		dir := t.TempDir()
		first, err := New(t.Context(), options(dir, bare))
		if err != nil {
			t.Fatal(err)
		}
		begin(t, first, spec("one", "serving"))
		expect(t, first, "one", cluster.Ready)
		begin(t, first, spec("two", "serving"))
		expect(t, first, "two", cluster.Ready)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := New(ended, options(dir, bare)); err == nil {
			t.Fatal("two backends in one directory")
		}
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		// This one is gone before the next backend comes.
		pid := pidOf(t, first, "two")
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if _, err := syscall.Wait4(pid, nil, 0, nil); err != nil {
			t.Fatal(err)
		}
		b := open(t, options(dir, bare))
		instances, err := b.Instances(t.Context())
		if err != nil || len(instances) != 1 || instances[0].State != cluster.Ready {
			t.Fatalf("instances %+v, %v", instances, err)
		}
		if err := b.Stop(t.Context(), "one"); err != nil {
			t.Fatal(err)
		}
		nothingLeft(t, b)
	})
}

func TestARecycledPidIsNeverTouched(t *testing.T) {
	bystander := exec.Command("/bin/sleep", "1000")
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bystander.Process.Kill(); _ = bystander.Wait() })
	id, err := process.Identify(bystander.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	l, err := newLayout(dir)
	if err != nil {
		t.Fatal(err)
	}
	recycled, reboot := id, id
	recycled.StartTime--
	reboot.Boot = "an earlier boot"
	for name, identity := range map[string]process.Identity{"recycled": recycled, "reboot": reboot} {
		if err := os.Mkdir(l.instance(cluster.InstanceID(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := l.create(record{Spec: spec(name, "serving"), Process: &identity, Cgroup: true}); err != nil {
			t.Fatal(err)
		}
	}
	b := open(t, options(dir, false))
	nothingLeft(t, b)
	if !id.Alive() {
		t.Error("the process that has the pid now was killed")
	}
}

func TestStateThatCannotBeReadIsClearedUp(t *testing.T) {
	eachWay(t, func(t *testing.T, bare bool) {
		dir := t.TempDir()
		provider(t, "provider", dir, bare)()
		l, err := newLayout(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(l.instance("quick"), "instance.json"), []byte(`{"spec":`), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(l.instance("slow"), "instance.json")); err != nil {
			t.Fatal(err)
		}
		b := open(t, options(dir, bare))
		nothingLeft(t, b)
	})
}

// One instance that cannot be removed keeps neither the provider from starting nor others
// from being taken over. It is removed as soon as that works.
func TestWhatCannotBeRemovedIsPutOff(t *testing.T) {
	eachWay(t, func(t *testing.T, bare bool) {
		dir := t.TempDir()
		provider(t, "provider", dir, bare)()
		l, err := newLayout(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(l.instance("stuck"), 0o700); err != nil {
			t.Fatal(err)
		}
		var stuck atomic.Bool
		stuck.Store(true)
		o := options(dir, bare)
		o.removeAll = func(path string) error {
			if stuck.Load() && path == l.instance("stuck") {
				return &fs.PathError{Op: "unlinkat", Path: path, Err: syscall.EBUSY}
			}
			return os.RemoveAll(path)
		}
		b := open(t, o)
		if instances, err := b.Instances(t.Context()); err != nil || len(instances) != 2 {
			t.Errorf("took over %d instances, %v; want the two others", len(instances), err)
		}
		b.leftovers.tidy()
		if _, err := os.Stat(l.instance("stuck")); err != nil {
			t.Errorf("what marks the rest is gone: %v", err)
		}
		stuck.Store(false)
		b.leftovers.tidy()
		if _, err := os.Stat(l.instance("stuck")); !errors.Is(err, fs.ErrNotExist) || len(b.leftovers.records) != 0 {
			t.Errorf("the rest is still there: %v, %v", err, b.leftovers.records)
		}
		for _, id := range []cluster.InstanceID{"quick", "slow"} {
			stopNow(t, b, id)
		}
		nothingLeft(t, b)
	})
}

// The same for an instance that exits while the provider runs.
func TestAnExitedInstanceThatCannotBeRemovedIsPutOff(t *testing.T) {
	eachWay(t, func(t *testing.T, bare bool) {
		dir := t.TempDir()
		var stuck atomic.Bool
		stuck.Store(true)
		o := options(dir, bare)
		o.removeAll = func(path string) error {
			if stuck.Load() {
				return &fs.PathError{Op: "unlinkat", Path: path, Err: syscall.EBUSY}
			}
			return os.RemoveAll(path)
		}
		b := open(t, o)
		begin(t, b, spec("one", "serving"))
		expect(t, b, "one", cluster.Ready)
		stopNow(t, b, "one")
		if len(b.leftovers.records) != 1 {
			t.Errorf("remembered are %v", b.leftovers.records)
		}
		stuck.Store(false)
		b.leftovers.tidy()
		nothingLeft(t, b)
	})
}

func TestAProviderMayBeKilledAtAnyInstant(t *testing.T) {
	eachWay(t, func(t *testing.T, bare bool) {
		dir, mounts := t.TempDir(), mountCount(t)
		for range 5 {
			kill := provider(t, "restless provider", dir, bare)
			time.Sleep(time.Duration(rand.IntN(120)) * time.Millisecond)
			kill()
		}
		b := open(t, options(dir, bare))
		instances, err := b.Instances(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, instance := range instances {
			stopNow(t, b, instance.ID)
		}
		nothingLeft(t, b)
		if now := mountCount(t); now != mounts {
			t.Errorf("%d mounts, before it were %d", now, mounts)
		}
	})
}

func TestCoresSurviveATakeOver(t *testing.T) {
	dir := t.TempDir()
	o := options(dir, false)
	o.Cores, o.PinCPUs = []int{0}, true
	first, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	whole := spec("whole", "serving")
	whole.Config.CPU = 1000
	begin(t, first, whole)
	expect(t, first, "whole", cluster.Ready)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	b := open(t, o)
	if got := b.cores.Shared(); b.tree != nil && len(got) != 0 {
		t.Errorf("shared cores %v, want none", got)
	}
	r, err := b.layout.read("whole")
	if err != nil || b.tree != nil && !slices.Equal(r.Cores, []int{0}) {
		t.Errorf("state %+v, %v", r, err)
	}
}
