package rig

import (
	"errors"
	"fmt"
	"os"

	"github.com/faas-infer/faas-infer/cluster/local/cgroup"
)

// Priority is the CPU weight of the load and of the gateway. A provider and its instances outrank
// other processes on the machine. The gateway gets the same weight, as "faas-infer up" gives
// it to its own; and the load too, because clients are on other machines.
type Priority struct{ tree cgroup.Tree }

// TakePriority gives this process and those that it starts the weight of a provider. Where it
// may make no cgroups, providers have no priority either, and it does nothing.
func TakePriority() (*Priority, error) {
	tree, err := cgroup.Open(fmt.Sprintf("faas-infer-bench-%d", os.Getpid()), false)
	if errors.Is(err, cgroup.ErrUnavailable) {
		return &Priority{}, nil
	}
	if err != nil {
		return nil, err
	}
	return &Priority{tree}, tree.Join()
}

// Ordinary gives a process the weight that processes have.
func (p *Priority) Ordinary(pid int) error {
	if p.tree == nil {
		return nil
	}
	return p.tree.Place(pid, false)
}

// GiveUp undoes TakePriority.
func (p *Priority) GiveUp() error {
	if p.tree == nil {
		return nil
	}
	return errors.Join(p.tree.Leave(), p.tree.Remove())
}
