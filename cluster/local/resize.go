package local

import (
	"context"
	"errors"
	"fmt"

	"github.com/faas-infer/faas-infer/cluster"
)

// parkedCPU is what a parked instance may use, in millicores. It has nothing to do
// but to say that it is well.
const parkedCPU = 50

// Resize gives an instance another CPU quota, and cores of its own or none, as
// they come with it; a parked one gets them back by it. A next provider takes it over
// with that. The error wraps [ErrNoCapacity] if less is free than it asks for more.
func (b *Backend) Resize(ctx context.Context, id cluster.InstanceID, config cluster.Config) error {
	err := b.change(ctx, id, func(e *entry) error {
		if err := resizable(e.record.Spec, config); err != nil {
			return err
		}
		return e.promise(config)
	})
	if err != nil {
		return fmt.Errorf("resize %s: %w", id, err)
	}
	return nil
}

// Park takes an instance's CPU quota and its cores, but for what it needs to say that
// it is well, until it is resized. A next provider takes it over parked.
func (b *Backend) Park(ctx context.Context, id cluster.InstanceID) error {
	err := b.change(ctx, id, func(e *entry) error {
		if e.record.Spec.Kind != cluster.Model || e.starting() {
			return errors.New("only a model's instance that has loaded can be parked")
		}
		e.configure(e.record.Spec.Config, true)
		return nil
	})
	if err != nil {
		return fmt.Errorf("park %s: %w", id, err)
	}
	return nil
}

// change has an instance's quota follow what configure does to its record, or leaves
// all as it was.
func (b *Backend) change(ctx context.Context, id cluster.InstanceID, configure func(*entry) error) error {
	e, err := b.find(id)
	if err == nil && (e == nil || !isClosed(e.launched)) {
		err = errors.New("no such instance")
	}
	if err = errors.Join(ctx.Err(), err); err != nil {
		return err
	}
	b.pinning.Lock()
	defer b.pinning.Unlock()
	if e.buried || isClosed(e.gone) {
		return errors.New("it has exited")
	}
	before := e.record.Spec
	if err := configure(e); err != nil {
		return err
	}
	if err := e.requota(); err != nil {
		e.configure(before.Config, before.Parked)
		return errors.Join(err, e.requota())
	}
	return nil
}

// resizable refuses a config that differs in more than the quota.
func resizable(spec cluster.InstanceSpec, config cluster.Config) error {
	same := spec.Config
	same.CPU = config.CPU
	switch {
	case spec.Kind != cluster.Model:
		return errors.New("only a model's instance has a quota that can be changed")
	case config.CPU <= 0:
		return fmt.Errorf("a quota of %d millicores", config.CPU)
	case same != config:
		return fmt.Errorf("from %v to %v more than its CPU quota would change", spec.Config, config)
	case spec.Config.Threads() != config.Threads():
		return fmt.Errorf("it has %d threads, with %d millicores it would have %d", spec.Config.Threads(), config.CPU, config.Threads())
	}
	return nil
}

// promise takes what the config needs more from what is free.
func (e *entry) promise(config cluster.Config) error {
	b := e.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return ErrClosed
	}
	more := config.Resources.Sub(e.instance.Holds())
	if free := b.free(); (more.CPU > 0 || more.GPU > 0) && !more.Fits(free) {
		return fmt.Errorf("%w: it asks for %d millicores and %d %% of a GPU more, free is %d and %d", ErrNoCapacity, more.CPU, more.GPU, free.CPU, free.GPU)
	}
	e.set(config, false)
	return nil
}

// configure sets the config that an instance has, and whether it is parked.
func (e *entry) configure(config cluster.Config, parked bool) {
	e.backend.mu.Lock()
	defer e.backend.mu.Unlock()
	e.set(config, parked)
}

// set is called with pinning and mu held.
func (e *entry) set(config cluster.Config, parked bool) {
	e.instance.Config, e.record.Spec.Config = config, config
	e.instance.Parked, e.record.Spec.Parked = parked, parked
}

// requota gives an instance cores and limits by its config, and writes that down.
// It is called with pinning held.
func (e *entry) requota() error {
	b := e.backend
	if e.group == nil {
		return b.layout.replace(e.record)
	}
	var err error
	if b.options.PinCPUs {
		e.record.Cores = b.cores.Take(string(e.record.Spec.ID), wholeCores(e.record.Spec))
		err = b.repin()
	}
	whole, _ := e.limits()
	if e.starting() {
		whole.CPU = boosted(whole.CPU)
	}
	return errors.Join(err, e.group.Update(whole), b.layout.replace(e.record))
}

func (e *entry) starting() bool {
	e.backend.mu.Lock()
	defer e.backend.mu.Unlock()
	return e.instance.State == cluster.Starting
}
