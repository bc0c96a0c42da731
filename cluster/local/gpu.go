package local

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/local/gpus"
	"github.com/faas-infer/faas-infer/gpu"
)

// openGPUs finds this machine's GPUs.
func (b *Backend) openGPUs(ctx context.Context) (err error) {
	o := b.options.GPUs
	o.Dir, o.Failed, o.Logger = b.layout.gpus(), b.deviceFailed, b.options.Logger
	if b.gpus, err = gpus.Open(ctx, o); err != nil {
		b.gpus = &gpus.GPUs{}
	}
	return err
}

// gpus is the directory of MPS daemons, where the paths of sockets are short enough.
func (l layout) gpus() string {
	if l.sockets != "" {
		return filepath.Join(l.sockets, "gpus")
	}
	return filepath.Join(l.dir, "gpus")
}

// GPUs returns this machine's GPUs that instances use, and how.
func (b *Backend) GPUs() gpu.Inventory { return b.gpus.Inventory() }

// allot chooses the devices of an instance that is about to start, if there is room for it. The error
// wraps [ErrNoCapacity] otherwise. It is called with mu held.
func (b *Backend) allot(e *entry) error {
	spec := &e.record.Spec
	need, n := spec.Config.Resources, b.free()
	switch wish := spec.Devices; {
	case !need.Fits(n.Free):
		return fmt.Errorf("%w: it asks for %+v, but %+v is free", ErrNoCapacity, need, n.Free)
	case n.Devices == nil || need.OnDevice() == cluster.Resources{}:
		spec.Devices = nil
	case spec.Kind == cluster.Process:
		if spec.Devices = n.Empty(need.GPU / cluster.WholeDevice); spec.Devices == nil {
			return fmt.Errorf("%w: it asks for %d GPUs to itself, and there are fewer on which nothing runs", ErrNoCapacity, need.GPU/cluster.WholeDevice)
		}
	default:
		i := cluster.ChooseDevice(n.Devices, need, spec.Device())
		if i < 0 {
			return fmt.Errorf("%w: it asks for %d %% and %d MiB of a GPU, and no single one has both left (wanted: %v)", ErrNoCapacity, need.GPU, need.GPUMemory>>20, wish)
		}
		spec.Devices = []string{n.Devices[i].UUID}
	}
	e.instance.Devices = spec.Devices
	return nil
}

// allowed returns a function's variables without those that say which GPU a process uses, if this
// machine has any: the backend decides that.
func (b *Backend) allowed(env map[string]string) map[string]string {
	if !b.gpus.Present() {
		return env
	}
	env = maps.Clone(env)
	maps.DeleteFunc(env, func(name, _ string) bool { return gpu.Ours(name) })
	return env
}

// deviceFailed stops the instances on a device that cannot go on.
func (b *Backend) deviceFailed(device, why string) {
	b.dropWhere(func(s *cluster.InstanceSpec) string {
		for _, d := range s.Devices {
			if d == device {
				return why
			}
		}
		return ""
	})
}

// dropFailed stops the instances of an earlier provider that cannot go on.
func (b *Backend) dropFailed() { b.dropWhere(b.gpus.Stale) }

// dropWhere stops the instances for which why returns a reason. Their drivers see them exit, and start
// others. One that is just being started is left to [Backend.Start].
func (b *Backend) dropWhere(why func(*cluster.InstanceSpec) string) {
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
