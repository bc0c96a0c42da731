package cgroup

import (
	"bytes"
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

func newSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// open returns a real tree, or nil where this user cannot have one.
func open(t *testing.T, name string) Tree {
	t.Helper()
	tree, err := Open(name, true)
	if errors.Is(err, ErrUnavailable) {
		t.Logf("%v; nothing more to try", err)
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tree.Remove(); err != nil {
			t.Error(err)
		}
	})
	return tree
}

func TestGroupLives(t *testing.T) {
	tree := open(t, "faas-infer-test-life")
	if tree == nil {
		return
	}
	group, err := tree.Create("one", Limits{CPU: 500, Cores: []int{0}, Memory: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if names, err := tree.Names(); err != nil || len(names) != 1 || names[0] != "one" {
		t.Errorf("groups %v, %v", names, err)
	}
	lives(t, tree, group)
}

func TestNothingIsLeftOfAGroupThatCannotBeMade(t *testing.T) {
	tree := open(t, "faas-infer-test-impossible")
	if tree == nil {
		return
	}
	if _, err := tree.Create("one", Limits{Cores: []int{100_000}}); err == nil {
		t.Fatal("a core that does not exist was taken")
	}
	if names, err := tree.Names(); err != nil || len(names) != 0 {
		t.Errorf("groups left: %v, %v", names, err)
	}
}

func TestQuotaAndCoresAreObeyed(t *testing.T) {
	tree := open(t, "faas-infer-test-quota")
	if tree == nil {
		return
	}
	group, err := tree.Create("one", Limits{CPU: 200, Cores: []int{0}})
	if err != nil {
		t.Fatal(err)
	}
	var printed bytes.Buffer
	command := exec.Command("/bin/sh", "-c", "grep Cpus_allowed_list /proc/self/status; while :; do :; done")
	command.Stdout = &printed
	command.SysProcAttr = newSession()
	if err := group.Spawn(command.SysProcAttr, func() (int, error) {
		return 0, command.Start()
	}); err != nil {
		t.Fatal(err)
	}
	before, err := group.Usage()
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	time.Sleep(time.Second)
	after, err := group.Usage()
	if err != nil {
		t.Fatal(err)
	}
	share := (after.CPU - before.CPU).Seconds() / time.Since(began).Seconds()
	if share > 0.26 || share < 0.02 {
		t.Errorf("used %.2f of a core, limited to 0.20", share)
	}
	if err := group.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = command.Wait()
	if !strings.HasSuffix(strings.TrimSpace(printed.String()), "\t0") {
		t.Errorf("it may run elsewhere than on core 0: %q", printed.String())
	}
	if err := group.Delete(); err != nil {
		t.Fatal(err)
	}
}

func TestOutOfMemoryIsCounted(t *testing.T) {
	tree := open(t, "faas-infer-test-memory")
	if tree == nil {
		return
	}
	group, err := tree.Create("one", Limits{Memory: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command("/bin/sh", "-c", "a=x; while :; do a=$a$a; done")
	command.SysProcAttr = newSession()
	if err := group.Spawn(command.SysProcAttr, func() (int, error) {
		return 0, command.Start()
	}); err != nil {
		t.Fatal(err)
	}
	_ = command.Wait()
	if usage, err := group.Usage(); err != nil || usage.OutOfMemory == 0 {
		t.Errorf("usage %+v, %v", usage, err)
	}
	if err := errors.Join(group.Kill(), group.Delete()); err != nil {
		t.Fatal(err)
	}
}
