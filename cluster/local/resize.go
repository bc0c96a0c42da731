package local

import (
	"context"
	"errors"
	"fmt"

	"github.com/faas-infer/faas-infer/cluster"
)

// Resize gives an instance another CPU quota, and cores of its own or none, as
// they come with it. A next provider takes it over with that. The error wraps
// [ErrNoCapacity] if less is free than it asks for more.
func (b *Backend) Resize(ctx context.Context, id cluster.InstanceID, config cluster.Config) error {
	e, err := b.find(id)
	if err == nil && (e == nil || !isClosed(e.launched)) {
		err = errors.New("no such instance")
	}
	if err = errors.Join(ctx.Err(), err); err != nil {
		return fmt.Errorf("resize %s: %w", id, err)
	}
	b.pinning.Lock()
	defer b.pinning.Unlock()
	if e.buried || isClosed(e.gone) {
		return fmt.Errorf("resize %s: it has exited", id)
	}
	before := e.record.Spec.Config
	if err := resizable(e.record.Spec, config); err != nil {
		return fmt.Errorf("resize %s: %w", id, err)
	}
	if err := b.promise(e, config); err != nil {
		return fmt.Errorf("resize %s: %w", id, err)
	}
	if err := b.requota(e); err != nil {
		b.configure(e, before)
		return fmt.Errorf("resize %s: %w", id, errors.Join(err, b.requota(e)))
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
func (b *Backend) promise(e *entry, config cluster.Config) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return ErrClosed
	}
	more := config.Resources.Sub(e.instance.Config.Resources)
	if free := b.free(); more.CPU > 0 && !more.Fits(free) {
		return fmt.Errorf("%w: it asks for %d millicores more, free is %d", ErrNoCapacity, more.CPU, free.CPU)
	}
	e.instance.Config, e.record.Spec.Config = config, config
	return nil
}

// configure sets the config that an instance has.
func (b *Backend) configure(e *entry, config cluster.Config) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e.instance.Config, e.record.Spec.Config = config, config
}

// requota gives an instance cores and limits by its config, and writes that down.
// It is called with pinning held.
func (b *Backend) requota(e *entry) error {
	if e.group == nil {
		return b.layout.replace(e.record)
	}
	var err error
	if b.options.PinCPUs {
		e.record.Cores = b.cores.Take(string(e.record.Spec.ID), wholeCores(e.record.Spec))
		err = b.repin()
	}
	whole, _ := b.limits(e)
	if b.starting(e) {
		whole.CPU = boosted(whole.CPU)
	}
	return errors.Join(err, e.group.Update(whole), b.layout.replace(e.record))
}

func (b *Backend) starting(e *entry) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return e.instance.State == cluster.Starting
}
