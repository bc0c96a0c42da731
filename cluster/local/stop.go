package local

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// signalPause is the time between two SIGTERMs to an instance that has not become ready.
// The kernel delivers a signal to the first process of a PID namespace only if the process
// handles it already.
const signalPause = 200 * time.Millisecond

// Stop sends SIGTERM and waits until all of the instance is gone. If ctx ends first, it
// kills all of the instance's processes.
func (b *Backend) Stop(ctx context.Context, id cluster.InstanceID) error {
	e, err := b.find(id)
	if e == nil {
		return err
	}
	select {
	case <-e.launched:
	case <-b.ctx.Done():
		return ErrClosed
	}
	if isClosed(e.gone) {
		// Its start failed, or it has exited.
		return nil
	}
	var again <-chan time.Time
	e.emit(func(i *cluster.Instance) bool {
		if i.ReadyAt.IsZero() {
			again = time.Tick(signalPause)
		}
		if i.State != cluster.Starting && i.State != cluster.Ready {
			return false
		}
		i.State = cluster.Stopping
		return true
	})
	for {
		if err := e.watch.Signal(syscall.SIGTERM); err != nil && e.record.Process.Alive() {
			return fmt.Errorf("stop %s: %w", id, err)
		}
		select {
		case <-again:
		case <-e.gone:
			return nil
		case <-b.ctx.Done():
			return ErrClosed
		case <-ctx.Done():
			return e.force()
		}
	}
}

// force kills an instance that did not stop in time.
func (e *entry) force() error {
	e.abandon("killed because it did not stop in time")
	select {
	case <-e.gone:
		return nil
	case <-e.backend.ctx.Done():
		return ErrClosed
	case <-time.After(2 * killTimeout):
		return fmt.Errorf("stop %s: it still exists %v after it was killed", e.record.Spec.ID, 2*killTimeout)
	}
}

// find returns an instance's entry, nil if there is none.
func (b *Backend) find(id cluster.InstanceID) (*entry, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, ErrClosed
	}
	return b.entries[id], nil
}
