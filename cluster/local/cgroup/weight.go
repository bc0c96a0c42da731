package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/containerd/cgroups/v3/cgroup1"
)

// Weights say who gets a core that several want. An ordinary process weighs 1024 by
// version 1's count and 100 by version 2's. The instances of a provider together, and the
// provider itself, weigh so much more that what else runs on the machine takes little from
// them; their quotas leave it the rest. Among each other, instances weigh as much as their
// quotas are.
const (
	favouredV1 = 64 * 1024
	favouredV2 = 64 * 100
)

// sharesOf is a group's weight by version 1's count: its millicores, so that one core
// weighs about what an ordinary process does.
func sharesOf(millicores int) uint64 { return uint64(max(2, min(millicores, 262_144))) }

// weightOf is the same by version 2's count.
func weightOf(millicores int) uint64 { return uint64(max(1, min(millicores/10, 10_000))) }

// ownName is the group of the provider's own process, beside the tree.
func ownName(tree string) string { return tree + "-provider" }

// idleName is the group of what the provider does in the background, beside the tree.
func idleName(tree string) string { return tree + "-background" }

// leastV1 and leastV2 are the smallest weights that there are.
const (
	leastV1 = 2
	leastV2 = 1
)

// makeIdle makes the group of a directory one that gets what nobody else wants. A kernel
// before 5.15 knows only its weight.
func makeIdle(dir, weight string, least int) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make cgroup %s: %w", dir, err)
	}
	idle := filepath.Join(dir, "cpu.idle")
	if _, err := os.Stat(idle); err == nil {
		return setNumber(idle, 1)
	}
	return setNumber(filepath.Join(dir, weight), least)
}

// cpu is the directory of a group in the cpu controller, "" if the tree does not use that.
func (t *treeV1) cpu(path string) string {
	for _, subsystem := range t.used {
		if subsystem.Name() == cgroup1.Cpu {
			return subsystem.(placed).Path(path)
		}
	}
	return ""
}

// favour gives all instances together their weight.
func (t *treeV1) favour() error {
	if dir := t.cpu(t.path); dir != "" {
		return setNumber(filepath.Join(dir, "cpu.shares"), favouredV1)
	}
	return nil
}

// Join implements [Tree]. A process that is moved waits some milliseconds.
func (t *treeV1) Join() error {
	dir := t.cpu(ownName(t.path))
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make cgroup %s: %w", ownName(t.path), err)
	}
	if err := errors.Join(setNumber(filepath.Join(dir, "cpu.shares"), favouredV1), setNumber(filepath.Join(dir, "cgroup.procs"), os.Getpid())); err != nil {
		return err
	}
	return t.settle()
}

// Leave implements [Tree]. Its child processes go along.
func (t *treeV1) Leave() error {
	dir := t.cpu(ownName(t.path))
	if dir == "" {
		return nil
	}
	return errors.Join(empty(dir, t.cpu(t.before)), empty(t.cpu(idleName(t.path)), t.cpu(t.before)), t.settle())
}

// Place implements [Tree].
func (t *treeV1) Place(pid int, idle bool) error {
	dir := t.cpu(t.before)
	if dir == "" {
		return nil
	}
	if idle {
		dir = t.cpu(idleName(t.path))
		if err := makeIdle(dir, "cpu.shares", leastV1); err != nil {
			return err
		}
	}
	return setNumber(filepath.Join(dir, "cgroup.procs"), pid)
}

// empty moves all members of a group to another and removes it.
func empty(dir, to string) error {
	raw, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("members of %s: %w", dir, err)
	}
	pids, err := parsePids(raw)
	if err != nil {
		return fmt.Errorf("members of %s: %w", dir, err)
	}
	for _, pid := range pids {
		if err := setNumber(filepath.Join(to, "cgroup.procs"), pid); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return removeDir(dir)
}

// favour gives all instances together their weight.
func (t *treeV2) favour() error {
	if !t.has("cpu") {
		return nil
	}
	return setNumber(filepath.Join(t.mount, t.path, "cpu.weight"), favouredV2)
}

// Join implements [Tree].
func (t *treeV2) Join() error {
	if !t.has("cpu") {
		return nil
	}
	dir := filepath.Join(t.mount, ownName(t.path))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make cgroup %s: %w", ownName(t.path), err)
	}
	return errors.Join(setNumber(filepath.Join(dir, "cpu.weight"), favouredV2), setNumber(filepath.Join(dir, "cgroup.procs"), os.Getpid()))
}

// Leave implements [Tree].
func (t *treeV2) Leave() error {
	before := filepath.Join(t.mount, t.before)
	return errors.Join(empty(filepath.Join(t.mount, ownName(t.path)), before), empty(filepath.Join(t.mount, idleName(t.path)), before))
}

// Place implements [Tree].
func (t *treeV2) Place(pid int, idle bool) error {
	if !t.has("cpu") {
		return nil
	}
	dir := filepath.Join(t.mount, t.before)
	if idle {
		dir = filepath.Join(t.mount, idleName(t.path))
		if err := makeIdle(dir, "cpu.weight", leastV2); err != nil {
			return err
		}
	}
	return setNumber(filepath.Join(dir, "cgroup.procs"), pid)
}

// setNumber writes a number to a file of the kernel's.
func setNumber(file string, value int) error {
	if err := os.WriteFile(file, []byte(strconv.Itoa(value)), 0o644); err != nil {
		return fmt.Errorf("set %s: %w", file, err)
	}
	return nil
}
