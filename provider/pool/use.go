package pool

import (
	"math"
	"sync"
	"time"
)

// useMemory is the time after which a member's use counts 1/e of what it did.
const useMemory = 10 * time.Minute

// use is how long a member's requests had instances: for each its part of its batch's execution, the time divided by the
// requests in the batch.
type use struct {
	mu     sync.Mutex
	at     time.Time
	recent float64 // In seconds; earlier use counts less.
}

// add counts a request.
func (u *use) add(now time.Time, took time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.recent = u.recent*fade(now.Sub(u.at)) + took.Seconds()
	u.at = now
}

// remove takes off the use of a member that goes, in seconds.
func (u *use) remove(now time.Time, lately float64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.recent, u.at = max(0, u.recent*fade(now.Sub(u.at))-lately), now
}

// lately is the use of late, in seconds.
func (u *use) lately(now time.Time) float64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.recent * fade(now.Sub(u.at))
}

func fade(since time.Duration) float64 {
	return math.Exp(-max(0, since.Seconds()) / useMemory.Seconds())
}

// part is what one of n members pays of the whole, from 0 to 1: by its use of late, or as much as the others while
// nobody has used anything.
func part(own, all float64, n int) float64 {
	if all <= 0 {
		return 1 / float64(max(1, n))
	}
	return min(1, own/all)
}
