package local

import (
	"errors"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/local/cgroup"
)

// enclose gives an instance its cores and makes its cgroup. It returns the
// cores that the process is to start on where there is no cgroup to hold it
// there, nil for any.
func (e *entry) enclose() (cores []int, err error) {
	b := e.backend
	if b.tree == nil {
		return b.options.Cores, nil
	}
	b.pinning.Lock()
	defer b.pinning.Unlock()
	id := e.record.Spec.ID
	if b.options.PinCPUs {
		e.record.Cores = b.cores.Take(string(id), wholeCores(e.record.Spec))
		if e.record.Cores != nil {
			// The others leave before it comes.
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

// wholeCores is the CPU share for which an instance may get cores of its own.
// Neither a function's requests nor a parked instance keep others away.
func wholeCores(spec cluster.InstanceSpec) int {
	if spec.Kind == cluster.Process || spec.Parked {
		return 0
	}
	return spec.Config.CPU
}

// boosted is the CPU limit of an instance that starts.
func boosted(limit int) int {
	if limit == 0 {
		return 0
	}
	return max(limit, startingCPU)
}

// startingCPU is what an instance may use at least, in millicores, until it is
// ready: on a quarter of a core, loading the engine alone takes 80 ms instead of
// 20, while a request waits.
const startingCPU = 1000

// restrict holds an instance that has become ready to its own share. It is called
// with pinning held.
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

// limits is what an instance's cgroup is held to, and what the function's
// processes in it, if that is not all of it. Our own process in an ordinary
// function's instance does not count against its limits. It is called with
// pinning held.
func (e *entry) limits() (whole, inner cgroup.Limits) {
	spec := e.record.Spec
	if e.backend.pins() {
		whole.Cores = e.coresOf()
	}
	if spec.Kind == cluster.Process {
		return whole, cgroup.Limits{CPU: spec.Limits.CPU, Memory: spec.Limits.Memory}
	}
	if whole.CPU, whole.Memory = spec.Config.CPU, spec.Config.Memory; spec.Parked {
		whole.CPU = min(whole.CPU, parkedCPU)
	}
	return whole, cgroup.Limits{}
}

// limit holds an instance to its limits.
func (e *entry) limit() error {
	whole, inner := e.limits()
	err := e.group.Update(whole)
	if e.record.Spec.Kind == cluster.Process {
		err = errors.Join(err, e.group.Inner().Update(inner))
	}
	return err
}

// coresOf returns where an instance may run: on its own cores, or on those that
// are shared. If those were all given away, the node has promised more than it
// has, and it may run everywhere.
func (e *entry) coresOf() []int {
	if len(e.record.Cores) > 0 {
		return e.record.Cores
	}
	if shared := e.backend.cores.Shared(); len(shared) > 0 {
		return shared
	}
	return e.backend.cores.All()
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
