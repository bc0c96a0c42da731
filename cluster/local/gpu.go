package local

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/local/gpus"
	"github.com/faas-infer/faas-infer/gpu"
)

// GPUs returns this machine's GPUs that instances use.
func (b *Backend) GPUs() *gpus.GPUs { return b.gpus }

// openGPUs finds this machine's GPUs.
func openGPUs(ctx context.Context, b *Backend) (err error) {
	o := b.options.GPUs
	o.Dir, o.Logger = b.layout.gpus(), b.options.Logger
	o.Failed = func(device, why string) {
		dropWhere(b, func(s *cluster.InstanceSpec) string {
			if slices.Contains(s.Devices, device) {
				return why
			}
			return ""
		})
	}
	if b.gpus, err = gpus.Open(ctx, o); err != nil {
		b.gpus = &gpus.GPUs{}
	}
	return err
}

// gpusName is the name of the directory of MPS daemons.
const gpusName = "gpus"

// gpus is the directory of MPS daemons, where the paths of sockets are short enough.
func (l layout) gpus() string {
	if l.sockets != "" {
		return filepath.Join(l.sockets, gpusName)
	}
	return filepath.Join(l.dir, gpusName)
}

// allot chooses the devices of an instance that is about to start, if there is room for it. The error
// wraps [ErrNoCapacity] otherwise. It is called with Backend.mu held.
func (e *entry) allot() error {
	spec := &e.record.Spec
	need, n := spec.Config.Resources, e.backend.free()
	own, free := n.Beside(need)
	switch {
	case !own.Fits(free):
		return fmt.Errorf("%w: it asks for %+v, but %+v is free", ErrNoCapacity, need, n.Free)
	case n.Devices == nil || need.OnDevice() == cluster.Resources{}:
		spec.Devices = nil
	case spec.Kind == cluster.Process:
		count := need.GPU / cluster.WholeDevice
		if spec.Devices = n.Empty(count); spec.Devices == nil {
			return fmt.Errorf("%w: it asks for %d GPUs to itself, and there are fewer on which nothing runs", ErrNoCapacity, count)
		}
	default:
		i := cluster.ChooseDevice(n.Devices, need, spec.Device())
		if i < 0 {
			return fmt.Errorf("%w: it asks for %d %% and %d MiB of a GPU, and no single one has both left", ErrNoCapacity, need.GPU, need.GPUMemory>>20)
		}
		spec.Devices = []string{n.Devices[i].UUID}
	}
	e.instance.Devices = spec.Devices
	return nil
}

// withoutDevices returns a function's variables without those that say which GPU a process uses: on a
// machine with GPUs, the backend decides that.
func withoutDevices(env map[string]string) map[string]string {
	env = maps.Clone(env)
	maps.DeleteFunc(env, func(name, _ string) bool { return gpu.Ours(name) })
	return env
}

// dropWhere stops the instances for which why returns a reason. Their drivers see them exit, and start
// others. One that is just being started is left to [Backend.Start].
func dropWhere(b *Backend, why func(*cluster.InstanceSpec) string) {
	b.mu.Lock()
	failed := map[*entry]string{}
	for _, e := range b.entries {
		if reason := why(&e.instance.InstanceSpec); reason != "" && isClosed(e.launched) {
			failed[e] = reason
		}
	}
	b.mu.Unlock()
	for e, reason := range failed {
		if !isClosed(e.gone) {
			e.abandon(reason)
		}
	}
}
