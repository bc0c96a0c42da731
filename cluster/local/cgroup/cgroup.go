// Package cgroup limits instances with Linux control groups, version 1 or 2,
// whichever has the machine's cpu, cpuset and memory controllers. All groups of one
// provider live under one parent group, its [Tree], so a restarted provider finds
// what a crash left behind. The package does not choose limits or start processes.
// Begin reading at [Open], [Tree] and [Group].
package cgroup

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/containerd/cgroups/v3"
)

// ErrUnavailable means that this machine or this user cannot have cgroups.
var ErrUnavailable = errors.New("cgroups cannot be used")

// killTimeout is how long a killed group may take to become empty.
const killTimeout = 5 * time.Second

// Limits bound what the members of one group use together.
type Limits struct {
	// CPU in millicores, 0 for no limit.
	CPU int
	// Cores that they may run on, empty for all.
	Cores []int
	// Memory in bytes, 0 for no limit. With a limit, they get no swap beyond it.
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
	// Missing lists the requested controllers that are not available.
	Missing() []string
	// Create makes the group name. After an error, nothing of the group exists.
	Create(name string, limits Limits) (Group, error)
	// Nest makes the group name with an inner group in it. whole limits the
	// process that Spawn starts and everything below it; inner also limits what that
	// process starts through the inner group's Entrance. Nest ignores whole's CPU
	// limit. After an error, nothing of the group exists.
	Nest(name string, whole, inner Limits) (Group, error)
	// Load returns the group name, whether or not it exists.
	Load(name string) Group
	// Names lists the groups that exist, in order.
	Names() ([]string, error)
	// Join moves this process into a group beside the tree that weighs as much as all
	// instances together. Neither they nor other programs can then starve it. Leave
	// moves it back and removes that group.
	Join() error
	Leave() error
	// Place moves a process that this one started out of the group that Join made, to
	// the group where this process was before. With idle, it moves the process to a
	// group beside the tree that gets only CPU time that nobody else wants.
	Place(pid int, idle bool) error
	// Remove deletes the tree's own group if no group is in it.
	Remove() error
}

// Group is one control group. All methods except Spawn are safe for concurrent
// use.
type Group interface {
	// Spawn calls start, which forks a process with attr and returns its pid. The
	// process is a member of the group before its first instruction.
	Spawn(attr *syscall.SysProcAttr, start func() (int, error)) error
	// Update changes the limits.
	Update(limits Limits) error
	// Usage reads the group's counters.
	Usage() (Usage, error)
	// Inner returns the inner group that Nest made.
	Inner() Group
	// Entrance opens the group's directories for a process that starts other
	// processes in it. The caller closes them.
	Entrance() (Entrance, error)
	// Processes lists the pids of all members, including those of the inner
	// group.
	Processes() ([]int, error)
	// Kill kills all members and returns when none is left. It ignores a group
	// that does not exist.
	Kill() error
	// Delete removes the group, which must have no members. It ignores a group
	// that does not exist.
	Delete() error
}

// Open makes or finds the tree called name. It uses the cpuset controller only
// if pin is set, because moving a process between cpusets is the most expensive
// move. An error wraps [ErrUnavailable] and says why.
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
