// Package events carries the events of a [cluster.Backend] from the backend, which never
// waits, to the one reader of its channel. It does not decide what an event is. Begin reading
// at [Queue].
package events

import (
	"context"
	"sync"

	"github.com/faas-infer/faas-infer/cluster"
)

// Queue holds the events that the reader has not taken yet. It is unbounded because an
// instance causes few events in its life. It is safe for concurrent use.
type Queue struct {
	out chan cluster.Instance

	mu      sync.Mutex
	waiting []cluster.Instance
	wake    chan struct{}
}

// NewQueue returns an empty queue. Call Run to make it deliver.
func NewQueue() *Queue {
	return &Queue{out: make(chan cluster.Instance), wake: make(chan struct{}, 1)}
}

// Out returns the channel on which Run delivers the events.
func (q *Queue) Out() <-chan cluster.Instance { return q.out }

// Push adds an event. It does not wait for the reader.
func (q *Queue) Push(event cluster.Instance) {
	q.mu.Lock()
	q.waiting = append(q.waiting, event)
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take empties the queue.
func (q *Queue) take() []cluster.Instance {
	q.mu.Lock()
	defer q.mu.Unlock()
	events := q.waiting
	q.waiting = nil
	return events
}

// Run delivers events in their order until ctx ends, then drops the unread events and
// closes the channel.
func (q *Queue) Run(ctx context.Context) {
	defer close(q.out)
	for {
		for _, event := range q.take() {
			select {
			case q.out <- event:
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-q.wake:
		case <-ctx.Done():
			return
		}
	}
}
