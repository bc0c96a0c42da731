package queue

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
)

const mib = 1 << 20

// takes takes bytes for a function that must not wait.
func takes(t *testing.T, b *budget, held, need, want int64) int64 {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	grant, _ := b.take(ctx, held, need, want) // The error says that it would wait.
	return grant
}

// saturate lets a function take all that it may.
func saturate(t *testing.T, b *budget, need int64) (held int64) {
	t.Helper()
	for {
		grant := takes(t, b, held, need, maxGrant)
		if grant == 0 {
			return held
		}
		held += grant
	}
}

// Functions that take all they may and give nothing back leave bytes to the next one.
func TestBudgetSlowFunctions(t *testing.T) {
	b := &budget{free: DefaultMaxHeld}
	var held []int64
	for n := 1; n <= 20; n++ {
		held = append(held, saturate(t, b, minGrant))
		switch {
		case n == 1 && (held[0] > DefaultMaxHeld/4 || held[0] < DefaultMaxHeld/5):
			t.Errorf("one function alone holds %d", held[0])
		case n == 4 && b.free < 80*mib:
			t.Errorf("4 slow functions leave %d", b.free)
		}
		if held[n-1] == 0 {
			t.Fatalf("function %d gets nothing, %d are free", n, b.free)
		}
	}
	// As their messages end, one after the other, they share again.
	for range 10000 {
		i := rand.IntN(len(held))
		done := min(held[i], mib)
		b.give(done)
		held[i] -= done
		held[i] += takes(t, b, held[i], minGrant, mib)
	}
	if want := int64(DefaultMaxHeld*3/23) - 4*mib; b.free < want {
		t.Errorf("20 busy functions leave %d, want %d", b.free, want)
	}
}

// A large message waits while slow functions hold too much. Meanwhile small ones pass, and
// functions that hold much take nothing more, so its turn comes.
func TestBudgetLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &budget{free: 64 * mib}
		slow := []int64{saturate(t, b, minGrant), saturate(t, b, minGrant)}
		var large int64
		go func() { large, _ = b.take(t.Context(), 0, 32*mib, 32*mib) }()
		synctest.Wait()
		if large != 0 {
			t.Fatal("it did not wait")
		}
		for range 1000 { // One message after the other.
			if takes(t, b, 0, minGrant, 4*mib) == 0 {
				t.Fatal("a small message waits for a large one")
			}
			b.give(min(4*mib, b.free/15)) // More or less what was taken.
			b.free = 64*mib - slow[0] - slow[1]
		}
		b.give(slow[0])
		synctest.Wait()
		if grant := takes(t, b, slow[1], minGrant, maxGrant); grant > 0 {
			t.Errorf("a function that holds %d takes %d more, and a large message waits", slow[1], grant)
		}
		b.give(slow[1])
		synctest.Wait()
		if large != 32*mib || b.free != 32*mib {
			t.Errorf("the large message got %d, %d are free", large, b.free)
		}
	})
}

// Whatever functions do, no more bytes are held than there are, everyone in line is served,
// and one whose context ends takes nothing.
func TestBudgetInterleavings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &budget{free: 64 * mib}
		var served, ended atomic.Int64
		for range 40 {
			go func() {
				for range 50 {
					need := int64(minGrant) << rand.IntN(8) // At most 32 MiB.
					ctx, cancel := t.Context(), context.CancelFunc(func() {})
					if rand.IntN(4) == 0 {
						ctx, cancel = context.WithTimeout(ctx, time.Duration(rand.IntN(100))*time.Millisecond)
					}
					grant, err := b.take(ctx, 0, need, 2*need)
					cancel()
					if err != nil {
						ended.Add(1)
						continue
					}
					if served.Add(1); grant < need || grant > 2*need {
						t.Errorf("asked for %d and got %d", need, grant)
					}
					b.mu.Lock()
					if b.free < 0 {
						t.Error("more is held than there is")
					}
					b.mu.Unlock()
					time.Sleep(time.Duration(rand.IntN(500)) * time.Millisecond)
					b.give(grant)
				}
			}()
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if served.Load()+ended.Load() != 40*50 || b.free != 64*mib || len(b.line) != 0 {
			t.Errorf("%d served, %d ended, %d free, %d in line", served.Load(), ended.Load(), b.free, len(b.line))
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

// Functions that wait for more than there is are not looked at whenever bytes come back.
func TestBudgetGrowth(t *testing.T) {
	looks := func(functions int) int {
		b, first := &budget{free: 64 * mib}, make([]*claim, functions)
		for i := range first {
			first[i] = &claim{need: 32 * mib, want: 32 * mib, ok: make(chan struct{})}
		}
		b.line, b.least = first, 32*mib
		held := int64(64 * mib)
		b.free = 0
		for len(b.line) > 0 {
			before := len(b.line)
			give := min(held, minGrant)
			b.give(give)
			for held -= give; before > len(b.line); before-- {
				held += 32 * mib
			}
		}
		return b.looks
	}
	if few, many := looks(100), looks(400); many > 5*few {
		t.Errorf("100 functions take %d looks and 400 take %d", few, many)
	}
}
