package local

import (
	"context"
	"fmt"
	"slices"

	"github.com/faas-infer/faas-infer/cluster"
)

// Move takes an instance's exclusive cores away and lets it run on all cores that no other
// instance has to itself, its former ones included. Within milliseconds the kernel then keeps
// it off cores that another process takes. It has no exclusive cores until its quota
// changes, or another provider takes it over. moved is false if the instance would get no
// other cores: it has none to itself already, or all others belong to other instances.
func (b *Backend) Move(ctx context.Context, id cluster.InstanceID) (moved bool, err error) {
	err = b.change(ctx, id, func(e *entry) error {
		had := e.record.Cores
		free := b.cores.Shared()
		moved = len(had) > 0 && slices.ContainsFunc(free, func(core int) bool { return !slices.Contains(had, core) })
		e.roams = e.roams || moved
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("move %s: %w", id, err)
	}
	return moved, nil
}

// takeCores gives an instance the cores that its config comes with. It is called with pinning
// held.
func (e *entry) takeCores() {
	id, whole := string(e.record.Spec.ID), wholeCores(e.record.Spec)
	if e.roams {
		e.backend.cores.Share(id, whole)
		e.record.Cores = nil
		return
	}
	e.record.Cores = e.backend.cores.Take(id, whole)
}
