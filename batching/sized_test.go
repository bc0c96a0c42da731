package batching

import (
	"math/rand/v2"
	"testing"
	"time"
)

// Whatever sizes requests have, each is answered once, no batch mixes them, and none is rejected that could
// be in time by the times of its own size.
func FuzzSizes(f *testing.F) {
	for seed := range uint64(40) {
		f.Add(seed, uint16(300))
	}
	f.Fuzz(func(t *testing.T, seed uint64, steps uint16) {
		random := rand.New(rand.NewPCG(seed, 35))
		slo := time.Duration(1+random.IntN(100)) * time.Millisecond
		h := newHarness(t, NewShared(Options{SLO: slo, MaxBatch: random.IntN(3) * 8}))
		h.within = slo - Travel(slo)
		h.sizes, h.stable, h.streams, h.classes = true, false, int(seed%3), 1+random.IntN(3)
		drive(h, random, slo, int(steps%1000))
	})
}
