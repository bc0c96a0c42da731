package keeper

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/cluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// backend fails to stop instances so many times, then takes as long for it.
type backend struct {
	cluster.Backend
	leaves time.Duration

	mu    sync.Mutex
	fails int
	asked []time.Time
}

func (b *backend) Stop(ctx context.Context, _ cluster.InstanceID) error {
	b.mu.Lock()
	b.asked = append(b.asked, time.Now())
	b.fails--
	failing := b.fails >= 0
	b.mu.Unlock()
	if failing {
		return errors.New("no answer")
	}
	select {
	case <-time.After(b.leaves):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *backend) Usage(_ context.Context, id cluster.InstanceID) (cluster.Resources, error) {
	if id == "gone" {
		return cluster.Resources{}, errors.New("no such instance")
	}
	time.Sleep(time.Second)
	return cluster.Resources{CPU: 250}, nil
}

// in runs f with a keeper in a bubble, in which time passes by itself.
func in(t *testing.T, b *backend, f func(t *testing.T, k *Keeper)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(t, New(b, zerolog.Nop()))
	})
}

// Four failures: after 0, 1, 1+2, 1+2+4 s; the fifth attempt, at 15 s, works.
func TestStopTriesAgain(t *testing.T) {
	b := &backend{fails: 4}
	in(t, b, func(t *testing.T, k *Keeper) {
		began := time.Now()
		k.Stop("i", time.Second)
		var after []time.Duration
		for _, at := range b.asked {
			after = append(after, at.Sub(began)/time.Second)
		}
		if !slices.Equal(after, []time.Duration{0, 1, 3, 7, 15}) {
			t.Errorf("asked after %v s", after)
		}
	})
}

// Whoever closes need not wait for the pause between two attempts.
func TestStopGivesUpAtTheEnd(t *testing.T) {
	in(t, &backend{fails: 1 << 20}, func(t *testing.T, k *Keeper) {
		began := time.Now()
		k.Begin(func() { k.Stop("i", time.Second) })
		time.Sleep(100 * time.Second) // Within the pause from 63 to 127 s.
		k.End()
		if err := k.Close(t.Context(), nil); err != nil || time.Since(began) != 100*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		k.Begin(func() { t.Error("something began after the end") })
	})
}

// Close waits for what it stops no longer than its context, and tells what failed.
func TestCloseIsBounded(t *testing.T) {
	in(t, &backend{leaves: time.Hour}, func(t *testing.T, k *Keeper) {
		began := time.Now()
		k.Begin(func() { k.Stop("slow", time.Hour) })
		k.End()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		err := k.Close(ctx, []func() error{k.AtEnd(ctx, "being started", make(chan struct{})), func() error { return errors.New("broken") }})
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "broken") || time.Since(began) != 5*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// A reading that takes long is the only one; what has gone uses nothing.
func TestOneReadingAtATime(t *testing.T) {
	in(t, &backend{}, func(t *testing.T, k *Keeper) {
		var lock sync.Mutex
		var got []map[cluster.InstanceID]cluster.Resources
		read := func() {
			lock.Lock()
			defer lock.Unlock()
			k.Read(&lock, []cluster.InstanceID{"i", "gone"}, func(used map[cluster.InstanceID]cluster.Resources) { got = append(got, used) })
		}
		read()
		read()
		time.Sleep(2 * time.Second)
		read()
		time.Sleep(2 * time.Second)
		lock.Lock()
		defer lock.Unlock()
		if len(got) != 2 || got[0]["i"] != (cluster.Resources{CPU: 250}) || got[0]["gone"] != (cluster.Resources{}) {
			t.Errorf("read %v", got)
		}
	})
}

func TestNewID(t *testing.T) {
	seen := map[cluster.InstanceID]bool{}
	for range 100 {
		id := NewID(strings.Repeat("x", 50) + ".space")
		if seen[id] || !strings.HasPrefix(string(id), strings.Repeat("x", 40)+"-") || len(id) != 40+1+12 {
			t.Fatalf("%q", id)
		}
		seen[id] = true
	}
}
