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

// The weights decide who gets a contended core. An ordinary process weighs 1024 in
// version 1 and 100 in version 2. A provider's instances together, and the provider itself,
// weigh 64 times as much, so other programs on the machine take little from them; the
// instances' quotas leave those programs the rest. Among each other, instances weigh in
// proportion to their quotas.
const (
	favouredV1 = 64 * 1024
	favouredV2 = 64 * 100
)

// sharesOf returns a group's weight in version 1: its millicores, so one core weighs about
// as much as an ordinary process.
func sharesOf(millicores int) uint64 { return uint64(max(2, min(millicores, 262_144))) }

// weightOf returns the same in version 2.
func weightOf(millicores int) uint64 { return uint64(max(1, min(millicores/10, 10_000))) }

// ownName names the group of the provider's own process, beside the tree.
func ownName(tree string) string { return tree + "-provider" }

// idleName names the group of the provider's background work, beside the tree.
func idleName(tree string) string { return tree + "-background" }

// minWeightV1 and minWeightV2 are the smallest weights.
const (
	minWeightV1 = 2
	minWeightV2 = 1
)

// makeIdle makes a group that gets only CPU time that nobody else wants. A kernel before
// 5.15 has no cpu.idle, so the group gets the smallest weight.
func makeIdle(dir, weightFile string, minWeight int) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make cgroup %s: %w", dir, err)
	}
	idle := filepath.Join(dir, "cpu.idle")
	if _, err := os.Stat(idle); err == nil {
		return setNumber(idle, 1)
	}
	return setNumber(filepath.Join(dir, weightFile), minWeight)
}

// cpu returns the directory of a group in the cpu controller; "" if the tree does not use
// that controller.
func (t *treeV1) cpu(path string) string {
	for _, subsystem := range t.used {
		if subsystem.Name() == cgroup1.Cpu {
			return subsystem.(pathed).Path(path)
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

// Join implements [Tree]. The move takes some milliseconds.
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
	return t.findHome()
}

// Leave implements [Tree]. It also moves child processes that are still in the group.
func (t *treeV1) Leave() error {
	dir := t.cpu(ownName(t.path))
	if dir == "" {
		return nil
	}
	return errors.Join(empty(dir, t.cpu(t.before)), empty(t.cpu(idleName(t.path)), t.cpu(t.before)), t.findHome())
}

// Place implements [Tree].
func (t *treeV1) Place(pid int, idle bool) error {
	dir := t.cpu(t.before)
	if dir == "" {
		return nil
	}
	if idle {
		dir = t.cpu(idleName(t.path))
		if err := makeIdle(dir, "cpu.shares", minWeightV1); err != nil {
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
		if err := makeIdle(dir, "cpu.weight", minWeightV2); err != nil {
			return err
		}
	}
	return setNumber(filepath.Join(dir, "cgroup.procs"), pid)
}

// setNumber writes a number to one of the kernel's files.
func setNumber(file string, value int) error {
	if err := os.WriteFile(file, []byte(strconv.Itoa(value)), 0o644); err != nil {
		return fmt.Errorf("set %s: %w", file, err)
	}
	return nil
}
