package cgroup

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/containerd/cgroups/v3"
)

// layOut makes a directory of plain files that looks like a unified hierarchy with the
// tree "faas".
func layOut(t *testing.T, controllers string) (mount string) {
	t.Helper()
	mount = t.TempDir()
	write(t, filepath.Join(mount, "cgroup.controllers"), controllers+"\n")
	write(t, filepath.Join(mount, "cgroup.procs"), "")
	write(t, filepath.Join(mount, "cgroup.subtree_control"), "")
	write(t, filepath.Join(mount, "faas/cgroup.subtree_control"), "")
	// The library makes files that nobody but root could read again.
	for _, file := range []string{"cpu.max", "cpuset.cpus", "memory.max", "memory.swap.max", "memory.oom.group"} {
		write(t, filepath.Join(mount, "faas/one", file), "untouched")
	}
	return mount
}

func TestV2WritesLimits(t *testing.T) {
	mount := layOut(t, "cpuset cpu io memory pids")
	write(t, filepath.Join(mount, "faas/memory.swap.max"), "max\n")
	tree, err := openV2(mount, "faas", []string{"cpu", "memory", "cpuset"})
	if err != nil {
		t.Fatal(err)
	}
	if missing := tree.Missing(); len(missing) != 0 {
		t.Errorf("missing %v", missing)
	}
	if _, err := tree.Create("one", Limits{CPU: 500, Cores: []int{0, 1, 3}, Memory: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(mount, "faas/one")
	for file, want := range map[string]string{
		"cpu.max":          "5000 10000",
		"cpuset.cpus":      "0-1,3",
		"memory.max":       "1048576",
		"memory.swap.max":  "0",
		"memory.oom.group": "untouched",
	} {
		if got := read(t, filepath.Join(dir, file)); got != want {
			t.Errorf("%s: %q, want %q", file, got, want)
		}
	}
	if got := read(t, filepath.Join(mount, "faas/cgroup.subtree_control")); got != "+cpu +cpuset +memory" {
		t.Errorf("enabled for groups: %q", got)
	}
	if err := tree.Load("one").Update(Limits{CPU: 2000}); err != nil {
		t.Fatal(err)
	}
	if got := read(t, filepath.Join(dir, "cpu.max")); got != "200000 100000" {
		t.Errorf("cpu.max after an update: %q", got)
	}
}

func TestV2ReadsUsage(t *testing.T) {
	mount := layOut(t, "cpu memory")
	tree, err := openV2(mount, "faas", []string{"cpu", "memory"})
	if err != nil {
		t.Fatal(err)
	}
	group, err := tree.Create("one", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(mount, "faas/one")
	write(t, filepath.Join(dir, "cpu.stat"), "usage_usec 1500000\nuser_usec 1\n")
	write(t, filepath.Join(dir, "memory.current"), "5000\n")
	write(t, filepath.Join(dir, "memory.stat"), "anon 3000\ninactive_file 1000\n")
	write(t, filepath.Join(dir, "memory.events"), "low 0\noom 3\noom_kill 2\n")
	write(t, filepath.Join(dir, "memory.max"), "max\n")
	write(t, filepath.Join(dir, "memory.swap.max"), "max\n")
	write(t, filepath.Join(dir, "cgroup.procs"), "17\n4\n0\n")
	usage, err := group.Usage()
	if err != nil {
		t.Fatal(err)
	}
	if want := (Usage{CPU: 1500 * time.Millisecond, Memory: 4000, OutOfMemory: 2}); usage != want {
		t.Errorf("usage %+v, want %+v", usage, want)
	}
	pids, err := group.Processes()
	if err != nil || !slices.Equal(pids, []int{17, 4}) {
		t.Errorf("members %v, %v", pids, err)
	}
}

func TestV2DoesWithoutMissingControllers(t *testing.T) {
	mount := layOut(t, "memory pids")
	tree, err := openV2(mount, "faas", []string{"cpu", "memory", "cpuset"})
	if err != nil {
		t.Fatal(err)
	}
	if missing := tree.Missing(); !slices.Equal(missing, []string{"cpu", "cpuset"}) {
		t.Errorf("missing %v", missing)
	}
	if _, err := tree.Create("one", Limits{CPU: 500, Cores: []int{0}, Memory: 4096}); err != nil {
		t.Fatal(err)
	}
	if got := read(t, filepath.Join(mount, "faas/one/cpu.max")); got != "untouched" {
		t.Error("a limit was written for a controller that is not there")
	}
	if _, err := openV2(layOut(t, "pids"), "faas", []string{"cpu", "memory"}); err == nil {
		t.Error("a hierarchy without any of our controllers was taken")
	}
}

// On machines whose controllers are in version 1, the unified hierarchy is
// often mounted beside them, empty: enough to try the real kernel's forking
// into a group, killing and removing.
func TestV2Kernel(t *testing.T) {
	mount := unifiedMount
	if cgroups.Mode() == cgroups.Hybrid {
		mount = filepath.Join(unifiedMount, "unified")
	}
	if cgroups.Mode() == cgroups.Legacy || os.Geteuid() != 0 {
		t.Log("no unified hierarchy that this user may write to; nothing more to try")
		return
	}
	tree := &treeV2{mount: mount, path: "/faas-infer-test-v2"}
	group, err := tree.Create("one", Limits{})
	if err != nil {
		t.Logf("the hierarchy cannot be written to (%v); nothing more to try", err)
		return
	}
	t.Cleanup(func() { _ = tree.Remove() })
	lives(t, tree, group)
}

// lives takes one group through its life with real processes.
func lives(t *testing.T, tree Tree, group Group) {
	t.Helper()
	command := exec.Command("/bin/sh", "-c", "sleep 1000 & exec sleep 1000")
	command.SysProcAttr = newSession()
	if err := group.Spawn(command.SysProcAttr, func() (int, error) {
		if err := command.Start(); err != nil {
			return 0, err
		}
		return command.Process.Pid, nil
	}); err != nil {
		t.Fatal(err)
	}
	pids := members(t, group, 2)
	if !slices.Contains(pids, command.Process.Pid) {
		t.Errorf("members %v lack the process %d", pids, command.Process.Pid)
	}
	if slices.Contains(pids, os.Getpid()) {
		t.Error("we are a member ourselves")
	}
	if err := group.Delete(); err == nil {
		t.Error("a group with members was removed")
	}
	if err := group.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = command.Wait()
	if err := group.Delete(); err != nil {
		t.Fatal(err)
	}
	if err := group.Delete(); err != nil {
		t.Errorf("removing what is removed: %v", err)
	}
	if err := group.Kill(); err != nil {
		t.Errorf("killing what is removed: %v", err)
	}
	if names, err := tree.Names(); err != nil || len(names) != 0 {
		t.Errorf("groups left: %v, %v", names, err)
	}
}

func members(t *testing.T, group Group, count int) []int {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		pids, err := group.Processes()
		if err != nil {
			t.Fatal(err)
		}
		pids = slices.DeleteFunc(pids, func(pid int) bool { return pid == os.Getpid() })
		if len(pids) == count {
			return pids
		}
		if time.Now().After(deadline) {
			t.Fatalf("members are %v, want %d of them", pids, count)
		}
	}
}
