package local

import (
	"context"
	"sync"

	"github.com/faas-infer/faas-infer/cluster"
)

// queue carries events from senders, which never wait, to the channel's reader,
// which may be slow. It is unbounded because an instance causes at most three
// events in its life.
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

// run delivers events until ctx ends, then drops the unread events and closes the
// channel.
func (q *queue) run(ctx context.Context) {
	defer close(q.out)
	for {
		q.mu.Lock()
		events := q.waiting
		q.waiting = nil
		q.mu.Unlock()
		for _, event := range events {
			select {
			case q.out <- event:
			case <-ctx.Done():
				return
			}
		}
		if len(events) > 0 {
			continue
		}
		select {
		case <-q.wake:
		case <-ctx.Done():
			return
		}
	}
}
