package cgroup

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/containerd/cgroups/v3"
)

func TestV2NestsWithoutMembersInTheMiddle(t *testing.T) {
	mount := layOut(t, "cpuset cpu memory")
	write(t, filepath.Join(mount, "faas/memory.swap.max"), "max\n")
	write(t, filepath.Join(mount, "faas/one/cgroup.subtree_control"), "")
	for _, file := range []string{"cpu.max", "memory.max", "memory.swap.max", "memory.oom.group"} {
		write(t, filepath.Join(mount, "faas/one/function", file), "untouched")
	}
	tree, err := openV2(mount, "faas", []string{"cpu", "memory", "cpuset"})
	if err != nil {
		t.Fatal(err)
	}
	group, err := tree.Nest("one", Limits{Cores: []int{1}}, Limits{CPU: 100, Memory: 5 << 20})
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"cpu.max": "max", "cpuset.cpus": "1", "memory.max": "untouched", "cgroup.subtree_control": "+cpu +memory",
		"function/cpu.max": "1000 10000", "function/memory.max": "5242880", "function/memory.swap.max": "0",
		"function/memory.oom.group": "untouched",
	} {
		if got := read(t, filepath.Join(mount, "faas/one", file)); got != want {
			t.Errorf("%s: %q, want %q", file, got, want)
		}
	}
	if err := tree.Load("one").Inner().Update(Limits{CPU: 2000}); err != nil {
		t.Fatal(err)
	}
	if got := read(t, filepath.Join(mount, "faas/one/function/cpu.max")); got != "200000 100000" {
		t.Errorf("cpu.max after an update: %q", got)
	}
	entrance, err := group.Inner().Entrance()
	if err != nil || entrance.Version != 2 || len(entrance.Dirs) != 1 || entrance.Dirs[0].Name() != filepath.Join(mount, "faas/one/function") {
		t.Errorf("entrance %+v, %v", entrance, err)
	}
	entrance.Close()
}

func TestNestedGroupLives(t *testing.T) {
	tree := open(t, "faas-infer-test-nest")
	if tree == nil {
		return
	}
	group, err := tree.Nest("one", Limits{Cores: []int{0}}, Limits{CPU: 500, Memory: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if names, err := tree.Names(); err != nil || !slices.Equal(names, []string{"one"}) {
		t.Errorf("groups %v, %v", names, err)
	}
	nestedLives(t, group)
	if names, err := tree.Names(); err != nil || len(names) != 0 {
		t.Errorf("groups left: %v, %v", names, err)
	}
}

func TestV2NestedKernel(t *testing.T) {
	if cgroups.Mode() != cgroups.Hybrid || os.Geteuid() != 0 {
		t.Log("no empty unified hierarchy that this user may write to; nothing more to try")
		return
	}
	tree := &treeV2{mount: filepath.Join(unifiedMount, "unified"), path: "/faas-infer-test-v2-nest"}
	group, err := tree.Nest("one", Limits{}, Limits{})
	if err != nil {
		t.Logf("the hierarchy cannot be written to (%v); nothing more to try", err)
		return
	}
	t.Cleanup(func() { _ = tree.Remove() })
	nestedLives(t, group)
}

// nestedLives starts a main process in a group, and another one that enters the inner
// group through its entrance. Then it removes both groups.
func nestedLives(t *testing.T, group Group) {
	t.Helper()
	main := exec.Command("/bin/sleep", "1000")
	main.SysProcAttr = newSession()
	if err := group.Spawn(main.SysProcAttr, func() (int, error) {
		if err := main.Start(); err != nil {
			return 0, err
		}
		return main.Process.Pid, nil
	}); err != nil {
		t.Fatal(err)
	}
	entrance, err := group.Inner().Entrance()
	if err != nil {
		t.Fatal(err)
	}
	defer entrance.Close()
	inner := exec.Command("/bin/sh", "-c", `for group in "$@"; do echo $$ > $group/cgroup.procs || exit 1; done; echo inside; exec sleep 1000`, "sh")
	for _, dir := range entrance.Dirs {
		inner.Args = append(inner.Args, dir.Name())
	}
	inner.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var said bytes.Buffer
	inner.Stderr = &said
	out, err := inner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := inner.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 100)); err != nil {
		t.Errorf("it could not enter: %s %v", said.String(), err)
	}
	if pids := members(t, group, 2); !slices.Contains(pids, main.Process.Pid) || !slices.Contains(pids, inner.Process.Pid) {
		t.Errorf("members %v", pids)
	}
	if pids := members(t, group.Inner(), 1); !slices.Contains(pids, inner.Process.Pid) {
		t.Errorf("members of the inner group %v", pids)
	}
	if err := group.Kill(); err != nil {
		t.Error(err)
	}
	_, _ = main.Process.Wait()
	_ = inner.Wait()
	if err := errors.Join(group.Delete(), group.Delete()); err != nil {
		t.Error(err)
	}
}
