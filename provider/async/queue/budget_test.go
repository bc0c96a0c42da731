package queue

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
)

// Small claims do not keep a large one waiting for ever.
func TestBudgetInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &budget{free: 10}
		if err := b.take(t.Context(), 8); err != nil {
			t.Fatal(err)
		}
		var order []string
		var mu sync.Mutex
		claim := func(name string, n int64) {
			if err := b.take(t.Context(), n); err != nil {
				t.Error(err)
			}
			mu.Lock()
			order = append(order, name)
			mu.Unlock()
			b.give(n)
		}
		go claim("large", 9)
		synctest.Wait()
		go claim("small", 2)
		synctest.Wait()
		if len(order) != 0 {
			t.Errorf("%v was served before the large one", order)
		}
		b.give(8)
		synctest.Wait()
		if strings.Join(order, " ") != "large small" || b.free != 10 {
			t.Errorf("order %v, free %d", order, b.free)
		}
	})
}

// A claim whose context ends takes no bytes.
func TestBudgetCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &budget{free: 100}
		var held atomic.Int64
		for range 50 {
			go func() {
				n := rand.Int64N(100) + 1
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(1000))*time.Millisecond)
				defer cancel()
				if b.take(ctx, n) != nil {
					return
				}
				if held.Add(n) > 100 {
					t.Error("more is held than there is")
				}
				time.Sleep(time.Duration(rand.IntN(500)) * time.Millisecond)
				held.Add(-n)
				b.give(n)
			}()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if b.free != 100 || len(b.waiting) != 0 {
			t.Errorf("free %d, waiting %d", b.free, len(b.waiting))
		}
	})
}

func TestTimes(t *testing.T) {
	var back times
	start := time.Now()
	later := func(n int) time.Time { return start.Add(time.Duration(n) * time.Second) }
	for _, n := range rand.Perm(100) {
		back.add(later(n + 1))
	}
	if at := back.until(start, later(1000)); !at.Equal(later(1)) || len(back) != 100 {
		t.Errorf("next at %v, %d left", at, len(back))
	}
	if at := back.until(later(50), later(1000)); at.After(later(50)) || len(back) != 50 {
		t.Errorf("acts at %v, %d left", at, len(back))
	}
	if at := back.until(later(50), later(1000)); !at.Equal(later(51)) {
		t.Errorf("next at %v", at)
	}
	if at := back.until(later(50), later(50)); !at.Equal(later(50)) {
		t.Errorf("next at %v", at)
	}
	if at := (&times{}).until(start, start); !at.Equal(start) {
		t.Errorf("none: %v", at)
	}
}

func TestConsumerName(t *testing.T) {
	for key, want := range map[string]string{"openfaas-fn.echo": "openfaas-fn_echo", "a_b.c": "other_", "": "", strings.Repeat("x", 200): "other_"} {
		if got := consumerName(key); !strings.HasPrefix(got, want) || strings.ContainsAny(got, ". *>") {
			t.Errorf("%q: %q", key, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("$JS.ACK.stream.consumer.3.17.5.1700000000000000000.9")
	f.Add("$JS.ACK._.hash.stream.consumer.3.17.5.1700000000000000000.9.token")
	f.Fuzz(func(t *testing.T, reply string) {
		sequence, deliveries, _, err := parse(&nats.Msg{Reply: reply})
		if err == nil && strings.HasPrefix(reply, "$JS.ACK.stream.consumer.3.17.") && (sequence != 17 || deliveries != 3) {
			t.Fatalf("%d %d", sequence, deliveries)
		}
	})
}
