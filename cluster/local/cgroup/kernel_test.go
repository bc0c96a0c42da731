package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

func newSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// open returns a real tree, or nil if this user cannot have one.
func open(t *testing.T, name string) Tree {
	t.Helper()
	// Others on the machine may run the same test.
	tree, err := Open(fmt.Sprint(name, "-", os.Getpid()), true)
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

// Join, Place and Leave use the provider's own group and the one for background work.
func TestPlaces(t *testing.T) {
	tree := open(t, "faas-infer-test-places")
	if tree == nil {
		return
	}
	c := exec.Command("sleep", "60")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = c.Process.Kill(), c.Wait() }()
	where := func() string {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", c.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	before := where()
	for _, idle := range []bool{true, false, true} {
		if err := tree.Place(c.Process.Pid, idle); err != nil {
			t.Fatal(err)
		}
		if now := where(); strings.Contains(now, "-background\n") != idle || !idle && now != before {
			t.Errorf("idle %v: %s", idle, now)
		}
	}
	if err := tree.Leave(); err != nil {
		t.Error(err)
	}
	if now := where(); now != before {
		t.Errorf("after the provider has left it is in %s", now)
	}
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
	// On a busy machine it may not get all that it may have.
	for end := time.Now().Add(time.Minute); ; {
		share := usedShare(t, group)
		if share >= 0.02 && share <= 0.26 {
			break
		}
		if share > 0.26 || time.Now().After(end) {
			t.Errorf("used %.2f of a core, limited to 0.20", share)
			break
		}
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

// usedShare returns the part of a core that a group uses in a second. It reads the clock
// around the counters, so a pause of the machine cannot make the share too large.
func usedShare(t *testing.T, group Group) float64 {
	t.Helper()
	began := time.Now()
	before, err := group.Usage()
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	after, err := group.Usage()
	if err != nil {
		t.Fatal(err)
	}
	return (after.CPU - before.CPU).Seconds() / time.Since(began).Seconds()
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
