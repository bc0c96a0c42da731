package kubernetes

import (
	"context"
	"sync"

	"github.com/faas-infer/faas-infer/cluster"
)

// queue carries events from senders, which never wait, to the channel's reader,
// which may be slow. It is unbounded because an instance causes few events in its
// life.
type queue struct {
	out chan cluster.Instance

	mu      sync.Mutex
	waiting []cluster.Instance
	wake    chan struct{}
}

func newQueue() *queue {
	return &queue{out: make(chan cluster.Instance), wake: make(chan struct{}, 1)}
}

// push adds an event.
func (q *queue) push(event cluster.Instance) {
	q.mu.Lock()
	q.waiting = append(q.waiting, event)
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take empties the queue.
func (q *queue) take() []cluster.Instance {
	q.mu.Lock()
	defer q.mu.Unlock()
	events := q.waiting
	q.waiting = nil
	return events
}

// run delivers events until ctx ends, then drops the unread events and closes the
// channel.
func (q *queue) run(ctx context.Context) {
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
