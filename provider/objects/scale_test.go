package objects

import (
	"testing"
	"time"
)

// The published number rises at once and falls slowly: an evicted pod is missing until its
// replacement starts, and the number must not follow it down. A function without room for
// the replacement still wants it. A number that stays lower is published.
func TestScale(t *testing.T) {
	type step struct {
		after time.Duration
		pods  int64
		short bool
		want  int64
	}
	const second = time.Second
	for name, c := range map[string]struct {
		shown int64
		steps []step
	}{
		"rises at once":                   {0, []step{{0, 1, false, 1}, {second, 5, false, 5}}},
		"an evicted pod and its heir":     {5, []step{{0, 5, false, 5}, {second, 4, false, 5}, {2 * second, 5, false, 5}, {20 * second, 5, false, 5}}},
		"one after another":               {5, []step{{0, 4, false, 5}, {8 * second, 5, false, 5}, {second, 4, false, 5}, {9 * second, 4, false, 5}, {second, 4, false, 4}}},
		"no room for the heir":            {5, []step{{0, 4, false, 5}, {second, 4, true, 5}, {time.Hour, 4, true, 5}, {second, 4, false, 5}, {11 * second, 4, false, 4}}},
		"falls to the highest of a while": {5, []step{{0, 3, false, 5}, {5 * second, 4, false, 5}, {5 * second, 2, false, 4}, {5 * second, 2, false, 4}, {5 * second, 2, false, 2}}},
		"to zero":                         {2, []step{{0, 0, false, 2}, {10 * second, 0, false, 0}}},
		"a new leader knows it":           {5, []step{{0, 4, false, 5}}},
	} {
		t.Run(name, func(t *testing.T) {
			s, now := scale{shown: c.shown}, time.Unix(0, 0)
			for i, step := range c.steps {
				now = now.Add(step.after)
				if got := s.look(now, step.pods, step.short); got != step.want {
					t.Errorf("step %d: %d pods are published as %d, not %d", i, step.pods, got, step.want)
				}
			}
		})
	}
}
