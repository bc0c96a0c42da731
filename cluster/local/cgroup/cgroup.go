// Package cgroup limits what instances use through Linux control groups,
// version 1 or 2, whichever the machine has its cpu, cpuset and memory
// controllers in. All groups of one provider live under one parent group, its
// [Tree], so that what a crash left behind is found by looking there.
package cgroup

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/containerd/cgroups/v3"
)

// ErrUnavailable says that this machine or this user cannot have cgroups.
var ErrUnavailable = errors.New("cgroups cannot be used")

// killPatience is how long a killed group may take to become empty.
const killPatience = 5 * time.Second

// Limits is what the members of one group may use together.
type Limits struct {
	// CPU in millicores, 0 for no limit.
	CPU int
	// Cores that they may run on, empty for all.
	Cores []int
	// Memory in bytes, 0 for no limit. Swap is not to be had beyond it.
	Memory int64
}

// Usage is what the members of one group use.
type Usage struct {
	// CPU time since the group was made.
	CPU time.Duration
	// Memory in bytes, without file pages that the kernel can drop at once.
	Memory int64
	// OutOfMemory counts the processes that the kernel killed because the
	// group reached its memory limit.
	OutOfMemory uint64
}

// Tree is the parent group of one provider.
type Tree interface {
	// String names the version and the path, for logs.
	String() string
	// Missing lists the controllers that were asked for and are not there.
	Missing() []string
	// Create makes the group name. Nothing is left behind on an error.
	Create(name string, limits Limits) (Group, error)
	// Nest makes the group name with an inner group in it: the process that
	// Spawn starts is held to whole, and what it starts by way of the inner
	// group's Entrance to inner as well. whole has no CPU limit. Nothing is left
	// behind on an error.
	Nest(name string, whole, inner Limits) (Group, error)
	// Load returns the group name, whether or not it exists.
	Load(name string) Group
	// Names lists the groups that exist, in order.
	Names() ([]string, error)
	// Join moves this process into a group beside the tree that weighs as much as all
	// instances together, so that neither they nor other programs keep it from its
	// work; Leave moves it back and removes that group.
	Join() error
	Leave() error
	// Place moves a process that this one has started out of the group that Join made:
	// to where this process was before, or, idle, to a group beside the tree that gets
	// what nobody else wants of the cores.
	Place(pid int, idle bool) error
	// Remove deletes the tree's own group if no group is in it.
	Remove() error
}

// Group is one control group. Its methods but Spawn are safe for concurrent
// use.
type Group interface {
	// Spawn calls start so that the process which start forks with attr is a
	// member of the group before its first instruction. start returns the pid.
	Spawn(attr *syscall.SysProcAttr, start func() (int, error)) error
	// Update changes the limits.
	Update(limits Limits) error
	// Usage reads the group's counters.
	Usage() (Usage, error)
	// Inner returns the group within that Nest made.
	Inner() Group
	// Entrance opens the group's directories for a process that is to start
	// others in it. The caller closes them.
	Entrance() (Entrance, error)
	// Processes lists the pids of all members, those of the inner group
	// included.
	Processes() ([]int, error)
	// Kill kills all members and returns when none is left. A group that does
	// not exist is no error.
	Kill() error
	// Delete removes the group, which must have no members. One that does not
	// exist is no error.
	Delete() error
}

// Open makes or finds the tree called name. It uses the cpuset controller only
// if pin is set, because moving a process between cpusets costs most. The
// error wraps [ErrUnavailable] and says why for people.
func Open(name string, pin bool) (Tree, error) {
	wanted := []string{"cpu", "memory"}
	if pin {
		wanted = append(wanted, "cpuset")
	}
	var tree Tree
	var err error
	switch cgroups.Mode() {
	case cgroups.Unified:
		tree, err = openV2(unifiedMount, name, wanted)
	case cgroups.Legacy, cgroups.Hybrid:
		tree, err = openV1(name, wanted)
	default:
		err = errors.New("no cgroup file system is mounted at " + unifiedMount)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return tree, nil
}
