// Package keeper is what the controllers of models and of ordinary functions share. A
// Keeper names instances, stops them until the backend has done so, and reads what they
// use. A Loop looks at the load every tick, and sooner after a Kick.
package keeper

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster"
)

// Keeper does it for one controller. What is marked so is called under the
// controller's lock.
type Keeper struct {
	backend cluster.Backend
	logger  zerolog.Logger

	// ctx ends when Close begins: from then on nothing is begun. stops ends
	// when Close's patience does: what is still stopping is then killed.
	// work counts what goes on in the background.
	ctx, stops   context.Context
	cancel, kill context.CancelFunc
	work         sync.WaitGroup
	// reading: a reading of what instances use goes on. It is under the lock of the
	// controller.
	reading bool
}

// New returns a keeper of a backend's instances.
func New(backend cluster.Backend, logger zerolog.Logger) *Keeper {
	k := &Keeper{backend: backend, logger: logger}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	k.stops, k.kill = context.WithCancel(context.Background())
	return k
}

// Context ends when End is called.
func (k *Keeper) Context() context.Context { return k.ctx }

// Stops ends when Close's patience does.
func (k *Keeper) Stops() context.Context { return k.stops }

// Ended tells whether End was called.
func (k *Keeper) Ended() bool { return k.ctx.Err() != nil }

// Begin runs f in the background, unless End was called. The controller's lock is held.
func (k *Keeper) Begin(f func()) {
	if !k.Ended() {
		k.work.Go(f)
	}
}

// End lets nothing begin any more. The controller's lock is held.
func (k *Keeper) End() { k.cancel() }

// Close runs all stops beside each other and waits for them and for what goes on in the
// background; what is still stopping when ctx ends is killed. It returns their errors.
// End comes before.
func (k *Keeper) Close(ctx context.Context, stops []func() error) error {
	defer context.AfterFunc(ctx, k.kill)()
	failures := make(chan error, len(stops))
	for _, stop := range stops {
		go func() { failures <- stop() }()
	}
	var err error
	for range stops {
		err = errors.Join(err, <-failures)
	}
	k.work.Wait()
	k.kill()
	return err
}

// AtEnd is what stops an instance for good: one that is being started now is found only
// after that.
func (k *Keeper) AtEnd(ctx context.Context, id cluster.InstanceID, begun <-chan struct{}) func() error {
	return func() error {
		select {
		case <-begun:
		case <-ctx.Done():
		}
		return k.backend.Stop(ctx, id)
	}
}

// Stop stops an instance, which may take the grace to leave. If the backend fails it tries
// again, after 1 s, 2 s, …, at most five minutes, until End: whoever closes stops all that
// are left and tells of failures itself.
func (k *Keeper) Stop(id cluster.InstanceID, grace time.Duration) {
	for pause := time.Second; ; pause = min(2*pause, 5*time.Minute) {
		ctx, cancel := context.WithTimeout(k.stops, grace)
		err := k.backend.Stop(ctx, id)
		cancel()
		if err == nil || k.Ended() {
			return
		}
		k.logger.Error().Str("instance", string(id)).Err(err).Msg("stop instance; it is tried again")
		select {
		case <-k.ctx.Done():
		case <-time.After(pause):
		}
	}
}

// Read reads in the background what instances use, unless the last reading still goes on,
// and hands it to took under the controller's lock. One that is not there yet, or no more,
// uses nothing. The lock is held.
func (k *Keeper) Read(lock sync.Locker, ids []cluster.InstanceID, took func(map[cluster.InstanceID]cluster.Resources)) {
	if k.reading || len(ids) == 0 || k.Ended() {
		return
	}
	k.reading = true
	k.Begin(func() {
		used := make(map[cluster.InstanceID]cluster.Resources, len(ids))
		for _, id := range ids {
			used[id], _ = k.backend.Usage(k.ctx, id)
		}
		lock.Lock()
		defer lock.Unlock()
		k.reading = false
		took(used)
	})
}

// ReadingPeriod is the time between two readings of what instances use.
const ReadingPeriod = 5 * time.Second

// NewID names an instance after its function, with 48 random bits behind.
func NewID(function string) cluster.InstanceID {
	name, _, _ := strings.Cut(function, ".")
	if len(name) > 40 {
		name = name[:40]
	}
	var b [6]byte
	rand.Read(b[:])
	return cluster.InstanceID(name + "-" + hex.EncodeToString(b[:]))
}
