package async

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/provider/async/queue"
)

// deadlineHeader is a request's header with the time, from its acceptance on, within which it should
// be executed. dueHeader is a message's, with that point in time in ms since 1970.
const (
	deadlineHeader = "X-Infer-Deadline"
	dueHeader      = "Faas-Due"
)

// maxDeadline is the longest time that deadlineHeader may name.
const maxDeadline = 24 * time.Hour

// usualDeadline is the deadline, after it was stored, of a request without one: capacity is
// planned so that none waits longer.
const usualDeadline = time.Minute

// window returns how many requests of a function may wait in hand for their turn beside so many
// that are executed. The one with the nearest deadline among them is next. Of several replicas,
// each has a window of its own, so it is small.
func window(concurrency int) int { return max(1, concurrency/4) }

// turns lets at most so many requests of each key run at a time, the nearest deadline first.
type turns struct {
	places int

	mu sync.Mutex
	by map[string]*line
}

// line are the requests of one key.
type line struct {
	running int
	waiting waiting
}

// turn is a request that waits. ready is closed when it may run; it then has index -1.
type turn struct {
	deadline time.Time
	sequence uint64
	index    int
	ready    chan struct{}
}

func newTurns(places int) *turns { return &turns{places: places, by: map[string]*line{}} }

// enter waits until a message may run. Call leave afterwards. It returns false if ctx or draining
// ends first.
func (t *turns) enter(ctx context.Context, draining <-chan struct{}, m *queue.Message,
	deadline time.Time) (leave func(), ok bool) {
	mine := t.join(m.Key, deadline, m.Sequence)
	leave = func() { t.leave(m.Key) }
	select {
	case <-mine.ready:
		return leave, true
	case <-ctx.Done():
	case <-draining:
	}
	t.mu.Lock()
	if mine.index >= 0 {
		heap.Remove(&t.by[m.Key].waiting, mine.index)
		t.mu.Unlock()
		return nil, false
	}
	t.mu.Unlock() // Its turn has come at the same moment.
	leave()
	return nil, false
}

func (t *turns) join(key string, deadline time.Time, sequence uint64) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.by[key]
	if l == nil {
		l = &line{}
		t.by[key] = l
	}
	mine := &turn{deadline: deadline, sequence: sequence, index: -1, ready: make(chan struct{})}
	if l.running < t.places {
		l.running++
		close(mine.ready)
	} else {
		heap.Push(&l.waiting, mine)
	}
	return mine
}

// leave gives the place of a request that ran to the next one.
func (t *turns) leave(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.by[key]
	if len(l.waiting) > 0 {
		close(heap.Pop(&l.waiting).(*turn).ready)
		return
	}
	if l.running--; l.running == 0 {
		delete(t.by, key)
	}
}

// begun returns a pool's counts of a key without the requests that wait for their turn: the queue
// has them, for all that others can see.
func (t *turns) begun(key string, s queue.PoolStats) queue.PoolStats {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	if l := t.by[key]; l != nil {
		n = min(len(l.waiting), s.Running)
	}
	return queue.PoolStats{Running: s.Running - n, Held: s.Held - n}
}

// waiting implements heap.Interface: the nearest deadline first, then the oldest message.
type waiting []*turn

func (w waiting) Len() int { return len(w) }

func (w waiting) Less(i, j int) bool {
	if d := w[i].deadline.Compare(w[j].deadline); d != 0 {
		return d < 0
	}
	return w[i].sequence < w[j].sequence
}

func (w waiting) Swap(i, j int) {
	w[i], w[j] = w[j], w[i]
	w[i].index, w[j].index = i, j
}

func (w *waiting) Push(x any) {
	one := x.(*turn)
	one.index = len(*w)
	*w = append(*w, one)
}

func (w *waiting) Pop() any {
	last := (*w)[len(*w)-1]
	last.index = -1
	*w = (*w)[:len(*w)-1]
	return last
}
