package local

import (
	"errors"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/local/cgroup"
)

// enclose gives an instance its cores and makes its cgroup. It returns the
// cores that the process is to start on where there is no cgroup to hold it
// there, nil for any.
func (b *Backend) enclose(e *entry) (cores []int, err error) {
	if b.tree == nil {
		return b.options.Cores, nil
	}
	b.pinning.Lock()
	defer b.pinning.Unlock()
	id := e.record.Spec.ID
	if b.options.PinCPUs {
		e.record.Cores = b.cores.Take(string(id), e.record.Spec.Config.CPU)
		if e.record.Cores != nil {
			// The others leave before it comes.
			if err := b.repin(); err != nil {
				return nil, err
			}
		}
	}
	limits := b.limits(e)
	limits.CPU = max(limits.CPU, startingCPU)
	e.group, err = b.tree.Create(string(id), limits)
	return nil, err
}

// startingCPU is what an instance may use at least, in millicores, until it is
// ready: on a quarter of a core, loading the engine alone takes 80 ms instead of
// 20, while a request waits.
const startingCPU = 1000

// restrict holds an instance that has become ready to its own share.
func (b *Backend) restrict(e *entry) error {
	if e.group == nil || e.record.Spec.Config.CPU >= startingCPU {
		return nil
	}
	b.pinning.Lock()
	defer b.pinning.Unlock()
	return e.group.Update(b.limits(e))
}

// limits is what an instance's cgroup is held to. It is called with pinning
// held.
func (b *Backend) limits(e *entry) cgroup.Limits {
	config := e.record.Spec.Config
	limits := cgroup.Limits{CPU: config.CPU, Memory: config.Memory}
	if b.pins() {
		limits.Cores = b.coresOf(e)
	}
	return limits
}

// coresOf returns where an instance may run: on its own cores, or on those that
// are shared. If those were all given away, the node has promised more than it
// has, and it may run everywhere.
func (b *Backend) coresOf(e *entry) []int {
	if len(e.record.Cores) > 0 {
		return e.record.Cores
	}
	if shared := b.cores.Shared(); len(shared) > 0 {
		return shared
	}
	return b.cores.All()
}

// repin moves all that share cores to those that are shared now. It is called
// with pinning held.
func (b *Backend) repin() error {
	b.mu.Lock()
	var members []*entry
	for _, id := range b.cores.Members() {
		if e := b.entries[cluster.InstanceID(id)]; e != nil {
			members = append(members, e)
		}
	}
	b.mu.Unlock()
	var errs []error
	for _, e := range members {
		if e.group != nil {
			errs = append(errs, e.group.Update(cgroup.Limits{Cores: b.coresOf(e)}))
		}
	}
	return errors.Join(errs...)
}

// release takes an instance's cores back and widens the shared pool.
func (b *Backend) release(e *entry) error {
	if b.tree == nil || !b.options.PinCPUs {
		return nil
	}
	b.pinning.Lock()
	defer b.pinning.Unlock()
	b.cores.Release(string(e.record.Spec.ID))
	if len(e.record.Cores) == 0 {
		return nil
	}
	return b.repin()
}
