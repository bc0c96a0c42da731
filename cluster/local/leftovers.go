package local

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// leftovers removes what instances leave behind when their process has exited, and tries
// again if that fails: the rest of one instance must not keep the provider from starting. It also
// writes the records that could not be written.
type leftovers struct {
	backend *Backend

	mu sync.Mutex
	// records are the instances of which something could not be removed. unswept: the same
	// holds for something that belongs to no instance.
	records map[cluster.InstanceID]record
	unswept bool
}

func newLeftovers(b *Backend) *leftovers {
	return &leftovers{backend: b, records: map[cluster.InstanceID]record{}}
}

// has reports whether something of an instance could not be removed.
func (l *leftovers) has(id cluster.InstanceID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.records[id]
	return ok
}

// users returns the users as which processes of such instances may still run.
func (l *leftovers) users() (users []int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.records {
		users = append(users, r.User)
	}
	return users
}

// tidyInterval is the time between two attempts to remove what could not be removed.
const tidyInterval = 30 * time.Second

// putOff remembers an instance of which something could not be removed, for tidy.
func (l *leftovers) putOff(r record, err error) {
	l.backend.log.Error().Err(err).Str("instance", string(r.Spec.ID)).Dur("retry_ms", tidyInterval).Msg("cannot remove all of an exited instance; trying again")
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records[r.Spec.ID] = r
}

// run calls tidy every tidyInterval.
func (l *leftovers) run() {
	ticker := time.Tick(tidyInterval)
	for {
		select {
		case <-l.backend.ctx.Done():
			return
		case <-ticker:
			l.tidy()
		}
	}
}

// tidy tries again to remove what could not be removed, and to write what could not be written.
func (l *leftovers) tidy() {
	l.backend.saveRecords()
	l.mu.Lock()
	left, unswept := maps.Clone(l.records), l.unswept
	l.mu.Unlock()
	for id, r := range left {
		if err := l.clear(r); err != nil {
			l.backend.log.Debug().Err(err).Str("instance", string(id)).Msg("still cannot remove all of an exited instance")
			continue
		}
		l.mu.Lock()
		delete(l.records, id)
		l.mu.Unlock()
	}
	if unswept {
		l.sweep()
	}
}

// sweep removes what belongs to no instance. If that fails, tidy tries again.
func (l *leftovers) sweep() {
	err := errors.Join(l.sweepGroups(), l.sweepSockets(), l.sweepLogs())
	if err != nil {
		l.backend.log.Error().Err(err).Dur("retry_ms", tidyInterval).Msg("cannot remove what earlier instances have left; trying again")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unswept = err != nil
}

// clear removes an instance whose main process does not run: its other processes, cgroup,
// socket and directory.
func (l *leftovers) clear(r record) error {
	var err error
	if l.backend.tree != nil {
		group := l.backend.tree.Load(string(r.Spec.ID))
		err = errors.Join(group.Kill(), group.Delete())
	}
	if l.backend.tree == nil || !r.Cgroup || r.Process == nil {
		err = errors.Join(err, l.backend.killMarked(r.Spec.ID))
	}
	if err != nil {
		return err
	}
	if err := l.backend.layout.remove(r.Spec.ID); err != nil {
		return err
	}
	l.backend.log.Info().Str("instance", string(r.Spec.ID)).Msg("removed the rest of an exited instance")
	return nil
}

// sweepGroups removes cgroups of instances that have no directory any more. It goes on after
// one that cannot be removed.
func (l *leftovers) sweepGroups() error {
	if l.backend.tree == nil {
		return nil
	}
	names, err := l.backend.tree.Names()
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		if l.backend.exists(name) {
			continue
		}
		group := l.backend.tree.Load(name)
		if err := errors.Join(group.Kill(), group.Delete()); err != nil {
			errs = append(errs, fmt.Errorf("clean up cgroup %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// sweepSockets does the same for sockets in the separate directory.
func (l *leftovers) sweepSockets() error {
	if l.backend.layout.sockets == "" {
		return nil
	}
	entries, err := os.ReadDir(l.backend.layout.sockets)
	if err != nil {
		return fmt.Errorf("directory for sockets: %w", err)
	}
	var errs []error
	for _, entry := range entries {
		if l.backend.exists(entry.Name()) || entry.Name() == gpusName {
			continue
		}
		if err := os.Remove(filepath.Join(l.backend.layout.sockets, entry.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove socket: %w", err))
		}
	}
	return errors.Join(errs...)
}

func (l *leftovers) sweepLogs() error {
	functions, err := l.backend.logs.Functions()
	for _, function := range functions {
		l.backend.pruneLogs(function, "")
	}
	return err
}

// exists reports whether something of an instance is there that the sweeps must not touch.
func (b *Backend) exists(id string) bool {
	b.mu.Lock()
	known := b.entries[cluster.InstanceID(id)] != nil
	b.mu.Unlock()
	return known || b.leftovers.has(cluster.InstanceID(id))
}
