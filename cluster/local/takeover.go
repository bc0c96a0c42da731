package local

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/local/process"
)

// takeOver finds what an earlier provider left. It adopts running instances and removes
// everything else.
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
		if err := b.clear(r); err != nil {
			return fmt.Errorf("clean up after instance %s: %w", id, err)
		}
	}
	return errors.Join(b.sweepGroups(), b.sweepSockets(), b.sweepLogs())
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
	return errors.Join(e.limit(), b.repin(), b.layout.replace(e.record))
}

// clear removes an instance whose main process does not run: its other processes, cgroup,
// socket and directory.
func (b *Backend) clear(r record) error {
	var err error
	if b.tree != nil {
		group := b.tree.Load(string(r.Spec.ID))
		err = errors.Join(group.Kill(), group.Delete())
	}
	if b.tree == nil || !r.Cgroup || r.Process == nil {
		err = errors.Join(err, b.killMarked(r.Spec.ID))
	}
	if err != nil {
		return err
	}
	b.log.Info().Str("instance", string(r.Spec.ID)).Msg("removed the rest of an exited instance")
	return b.layout.remove(r.Spec.ID)
}

// sweepGroups removes cgroups of instances that have no directory any more.
func (b *Backend) sweepGroups() error {
	if b.tree == nil {
		return nil
	}
	names, err := b.tree.Names()
	if err != nil {
		return err
	}
	for _, name := range names {
		if b.exists(name) {
			continue
		}
		group := b.tree.Load(name)
		if err := errors.Join(group.Kill(), group.Delete()); err != nil {
			return fmt.Errorf("clean up cgroup %s: %w", name, err)
		}
	}
	return nil
}

// sweepSockets does the same for sockets in the separate directory.
func (b *Backend) sweepSockets() error {
	if b.layout.sockets == "" {
		return nil
	}
	entries, err := os.ReadDir(b.layout.sockets)
	if err != nil {
		return fmt.Errorf("directory for sockets: %w", err)
	}
	for _, entry := range entries {
		if b.exists(entry.Name()) {
			continue
		}
		if err := os.Remove(filepath.Join(b.layout.sockets, entry.Name())); err != nil {
			return fmt.Errorf("remove socket: %w", err)
		}
	}
	return nil
}

func (b *Backend) sweepLogs() error {
	functions, err := b.logs.Functions()
	for _, function := range functions {
		b.pruneLogs(function, "")
	}
	return err
}

func (b *Backend) exists(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.entries[cluster.InstanceID(id)] != nil
}
