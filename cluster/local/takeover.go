package local

import (
	"errors"
	"fmt"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/local/process"
)

// takeOver finds what an earlier provider left. It adopts running instances and removes
// everything else. If it cannot remove something, leftovers tries again later: one instance that
// cannot be removed must not keep all others from being served.
func (b *Backend) takeOver() error {
	ids, err := b.layout.list()
	if err != nil {
		return err
	}
	for _, id := range ids {
		r, err := b.layout.read(id)
		if err != nil {
			b.log.Warn().Err(err).Msg("an earlier provider left an incomplete instance")
			r = record{Spec: cluster.InstanceSpec{ID: id}, Cgroup: b.tree != nil}
		}
		if err := b.adopt(r); err == nil {
			continue
		} else if !errors.Is(err, process.ErrGone) {
			return err
		}
		if err := b.leftovers.clear(r); err != nil {
			b.leftovers.putOff(r, err)
		}
	}
	b.leftovers.sweep()
	return nil
}

// adopt takes over a running instance. The error wraps [process.ErrGone] if its process
// does not run any more or never did.
func (b *Backend) adopt(r record) error {
	if r.Process == nil {
		return fmt.Errorf("%s is incomplete: %w", r.Spec.ID, process.ErrGone)
	}
	if !r.Process.Alive() {
		return fmt.Errorf("%s: %w", r.Spec.ID, process.ErrGone)
	}
	watch, err := process.Open(*r.Process)
	if err != nil {
		return err
	}
	e := b.newEntry(r)
	e.watch = watch
	close(e.launched)
	b.mu.Lock()
	b.entries[r.Spec.ID] = e
	b.mu.Unlock()
	if err := e.resume(); err != nil {
		b.log.Error().Err(err).Str("instance", string(r.Spec.ID)).Msg("cannot set the limits of an instance that was taken over")
	}
	if e.instance.State == cluster.Starting {
		e.readiness.Go(func() { e.pollReady() })
	}
	b.work.Go(func() { e.follow() })
	return nil
}

// resume gives an adopted instance its cores and limits again, because the earlier
// provider may have died before it set them.
func (e *entry) resume() error {
	b := e.backend
	if b.tree == nil || !e.record.Cgroup {
		return nil
	}
	b.pinning.Lock()
	defer b.pinning.Unlock()
	id := string(e.record.Spec.ID)
	e.group = b.tree.Load(id)
	if b.options.PinCPUs {
		e.record.Cores = b.cores.Adopt(id, wholeCores(e.record.Spec), e.record.Cores)
	} else {
		e.record.Cores = nil
	}
	err := errors.Join(e.limit(), b.repin())
	e.save()
	return err
}
