package command

import "testing"

// The memory of what is held for clients follows --max-held, and connections leave descriptors
// for instances.
func TestBoundsFollowMaxHeld(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		descriptors uint64
		maxHeld     int64
		want        int
	}{
		{256, 1024 * mib, 128},      // Half of them.
		{20_000, 1024 * mib, 10000}, // Half of them.
		{1 << 20, 256 * mib, 4096},  // One for 64 KiB.
		{1 << 20, 1 * mib, leastConnections},
	} {
		if got := defaultMaxConnections(c.descriptors, c.maxHeld); got != c.want {
			t.Errorf("%d descriptors, %d bytes: %d connections, want %d", c.descriptors, c.maxHeld, got, c.want)
		}
	}
	for _, maxHeld := range []int64{256 * mib, 512 * mib, 1024 * mib, 4096 * mib} {
		ordinary, spare := queueHeld(maxHeld)
		sum := maxHeld + maxHeld/headsPart + maxHeld/answersPart + ordinary + spare
		if limit := collectorLimit(maxHeld); sum > limit || limit > maxHeld*7/4+200*mib {
			t.Errorf("--max-held %d MiB: %d MiB may be held, the collector's limit is %d MiB", maxHeld/mib, sum/mib, limit/mib)
		}
	}
}

func TestLargestModel(t *testing.T) {
	if largestModel() < 64<<20 {
		t.Errorf("%d bytes for models", largestModel())
	}
}
