package local

import (
	"context"
	"errors"
	"fmt"

	"github.com/faas-infer/faas-infer/cluster"
)

// parkedCPU is the CPU limit of a parked instance in millicores. It only has to answer
// health checks.
const parkedCPU = 50

// Resize gives an instance another CPU quota, and exclusive cores if the quota comes with
// them. It also unparks a parked instance. The next provider takes over the new quota. The
// error wraps [ErrNoCapacity] if the increase does not fit into what is free.
func (b *Backend) Resize(ctx context.Context, id cluster.InstanceID, config cluster.Config) error {
	err := b.change(ctx, id, func(e *entry) error {
		if err := resizable(e.record.Spec, config); err != nil {
			return err
		}
		return e.claim(config)
	})
	if err != nil {
		return fmt.Errorf("resize %s: %w", id, err)
	}
	return nil
}

// Park takes an instance's cores and its CPU quota, except for what it needs to answer
// health checks, until it is resized. The next provider takes it over parked.
func (b *Backend) Park(ctx context.Context, id cluster.InstanceID) error {
	err := b.change(ctx, id, func(e *entry) error {
		if e.record.Spec.Kind != cluster.Model || e.starting() {
			return errors.New("only an instance of a model that has loaded can be parked")
		}
		e.configure(e.record.Spec.Config, true)
		return nil
	})
	if err != nil {
		return fmt.Errorf("park %s: %w", id, err)
	}
	return nil
}

// change calls configure to change an instance's record and applies the new quota. After
// an error it restores the old one.
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
	if e.removing || isClosed(e.gone) {
		return errors.New("it has exited")
	}
	before := e.record.Spec
	if err := configure(e); err != nil {
		return err
	}
	if err := e.applyQuota(); err != nil {
		e.configure(before.Config, before.Parked)
		return errors.Join(err, e.applyQuota())
	}
	return nil
}

// resizable refuses a config that differs in more than the quota.
func resizable(spec cluster.InstanceSpec, config cluster.Config) error {
	switch {
	case spec.Kind != cluster.Model:
		return errors.New("only an instance of a model has a quota that can be changed")
	case config.CPU <= 0:
		return fmt.Errorf("a quota of %d millicores: it must be above 0", config.CPU)
	}
	return spec.Config.CheckResize(config)
}

// claim sets the config if the increase fits into what is free.
func (e *entry) claim(config cluster.Config) error {
	b := e.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return ErrClosed
	}
	more := config.Resources.Sub(e.instance.Holds())
	if n := b.free(); (more.CPU > 0 || more.GPU > 0) && !n.FitsOn(more, e.instance.Device()) {
		return fmt.Errorf("%w: it asks for %d more millicores and %d more %% of a GPU, but %d and %d are free", ErrNoCapacity, more.CPU, more.GPU, n.Free.CPU, n.Free.GPU)
	}
	e.set(config, false)
	return nil
}

// configure sets an instance's config and whether it is parked.
func (e *entry) configure(config cluster.Config, parked bool) {
	e.backend.mu.Lock()
	defer e.backend.mu.Unlock()
	e.set(config, parked)
}

// set is configure with pinning and mu held.
func (e *entry) set(config cluster.Config, parked bool) {
	e.instance.Config, e.record.Spec.Config = config, config
	e.instance.Parked, e.record.Spec.Parked = parked, parked
	e.roams = false
}

// applyQuota gives an instance the cores and limits of its config, and then writes its record.
// It is called with pinning held.
func (e *entry) applyQuota() error {
	b := e.backend
	if e.group == nil {
		e.save()
		return nil
	}
	var err error
	if b.options.PinCPUs {
		e.takeCores()
		err = b.repin()
	}
	whole, _ := e.limits()
	if e.starting() {
		whole.CPU = boosted(whole.CPU)
	}
	err = errors.Join(err, e.group.Update(whole))
	e.save()
	return err
}

func (e *entry) starting() bool {
	e.backend.mu.Lock()
	defer e.backend.mu.Unlock()
	return e.instance.State == cluster.Starting
}
