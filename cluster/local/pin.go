package local

import (
	"errors"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/local/cgroup"
)

// makeGroup gives an instance its cores and makes its cgroup. Without cgroups, it returns
// the cores that the process must start on, nil for any.
func (e *entry) makeGroup() (cores []int, err error) {
	b := e.backend
	if b.tree == nil {
		return b.options.Cores, nil
	}
	b.pinning.Lock()
	defer b.pinning.Unlock()
	id := e.record.Spec.ID
	if b.options.PinCPUs {
		e.takeCores()
		if e.record.Cores != nil {
			// The other instances leave these cores before it starts.
			if err := b.repin(); err != nil {
				return nil, err
			}
		}
	}
	whole, inner := e.limits()
	if e.record.Spec.Kind == cluster.Process {
		inner.CPU = boosted(inner.CPU)
		e.group, err = b.tree.Nest(string(id), whole, inner)
		return nil, err
	}
	whole.CPU = boosted(whole.CPU)
	e.group, err = b.tree.Create(string(id), whole)
	return nil, err
}

// wholeCores returns the CPU share for which an instance may get exclusive cores, in
// millicores. A process, a parked instance and a member that shares its CPU with others get none.
func wholeCores(spec cluster.InstanceSpec) int {
	if spec.Kind == cluster.Process || spec.Parked || spec.Config.Most > 0 {
		return 0
	}
	return spec.Config.CPU
}

// boosted returns the CPU limit of an instance while it starts; 0 stays no limit.
func boosted(limit int) int {
	if limit == 0 {
		return 0
	}
	return max(limit, startingCPU)
}

// startingCPU is the lowest CPU limit in millicores until an instance is ready. On a
// quarter of a core, loading the engine alone takes 80 ms instead of 20, while a request
// waits.
const startingCPU = 1000

// restrict reduces an instance that has become ready to its own share. It is called with
// pinning held.
func (e *entry) restrict() error {
	if e.group == nil {
		return nil
	}
	whole, inner := e.limits()
	switch {
	case inner.CPU > 0 && inner.CPU < startingCPU:
		return e.group.Inner().Update(inner)
	case whole.CPU > 0 && whole.CPU < startingCPU:
		return e.group.Update(whole)
	}
	return nil
}

// limits returns the limits of an instance's cgroup and, for an ordinary function, of the
// inner group with the function's processes. The watchdog in an ordinary function's
// instance does not count against the function's limits. It is called with pinning held.
func (e *entry) limits() (whole, inner cgroup.Limits) {
	spec := e.record.Spec
	if e.backend.pins() {
		whole.Cores = e.coresOf()
	}
	if spec.Kind == cluster.Process {
		return whole, cgroup.Limits{CPU: spec.Limits.CPU, Memory: spec.Limits.Memory}
	}
	if whole.CPU, whole.Memory = spec.Config.Quota(), spec.Config.Memory; spec.Parked {
		whole.CPU = min(whole.CPU, parkedCPU)
	}
	return whole, cgroup.Limits{}
}

// limit sets the limits of an instance's cgroups.
func (e *entry) limit() error {
	whole, inner := e.limits()
	err := e.group.Update(whole)
	if e.record.Spec.Kind == cluster.Process {
		err = errors.Join(err, e.group.Inner().Update(inner))
	}
	return err
}

// coresOf returns the cores that an instance may run on: its exclusive ones, or otherwise
// the shared ones. If there are no shared ones, the node is overcommitted and the instance
// may run on all.
func (e *entry) coresOf() []int {
	if len(e.record.Cores) > 0 {
		return e.record.Cores
	}
	if shared := e.backend.cores.Shared(); len(shared) > 0 {
		return shared
	}
	return e.backend.cores.All()
}

// repin moves all members of the shared pool to its present cores. It is called with
// pinning held.
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
			errs = append(errs, e.group.Update(cgroup.Limits{Cores: e.coresOf()}))
		}
	}
	return errors.Join(errs...)
}

// release takes an instance's cores back and widens the shared pool.
func (e *entry) release() error {
	b := e.backend
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
