package podlogs

import (
	"context"
	"io"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// source is one instance's log while it is merged with others.
type source struct {
	instance string
	uid      types.UID
	lines    *reader
	close    func() error
	// head is its next line, last the time of the line that was taken last.
	head line
	last time.Time
}

// entry is a line and the instance that printed it.
type entry struct {
	instance string
	line
}

// past emits the lines that the pods have printed so far, in the order of time, and
// returns the time up to which each log was read.
func (q *query) past(ctx context.Context, pods []corev1.Pod) map[types.UID]time.Time {
	sources := q.openAll(ctx, pods)
	defer func() {
		for _, s := range sources {
			_ = s.close()
		}
	}()
	kept := ring{size: q.Tail}
	emitting := true
	merge(sources, func(e entry) bool {
		if q.Tail > 0 {
			kept.add(e)
			return ctx.Err() == nil
		}
		emitting = q.emit(ctx, e.instance, e.line)
		return emitting
	}, func(err error) { q.complain(ctx, err) })
	for _, e := range kept.all() {
		if !emitting {
			break
		}
		emitting = q.emit(ctx, e.instance, e.line)
	}
	read := map[types.UID]time.Time{}
	for _, s := range sources {
		read[s.uid] = s.last
	}
	return read
}

// openAll opens the logs of the wanted pods and leaves out those that cannot be read.
func (q *query) openAll(ctx context.Context, pods []corev1.Pod) []*source {
	found := make([]*source, len(pods))
	free := make(chan struct{}, maxOpening)
	var all sync.WaitGroup
	for i := range pods {
		if !q.wanted(&pods[i]) {
			continue
		}
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			stream, err := q.open(ctx, &pods[i], q.since(), false)
			if err != nil {
				q.complain(ctx, err)
				return
			}
			found[i] = &source{instance: pods[i].Name, uid: pods[i].UID, lines: newReader(stream), close: stream.Close}
		})
	}
	all.Wait()
	var sources []*source
	for _, s := range found {
		if s != nil {
			sources = append(sources, s)
		}
	}
	return sources
}

// merge takes lines from all sources, the oldest first, until take returns false.
func merge(sources []*source, take func(entry) bool, complain func(error)) {
	var open []*source
	advance := func(s *source) bool {
		var err error
		if s.head, err = s.lines.next(); err != nil && err != io.EOF {
			complain(err)
		}
		return err == nil
	}
	for _, s := range sources {
		if advance(s) {
			open = append(open, s)
		}
	}
	for len(open) > 0 {
		first := 0
		for i, s := range open {
			if s.head.time.Before(open[first].head.time) {
				first = i
			}
		}
		s := open[first]
		s.last = s.head.time
		if !take(entry{s.instance, s.head}) {
			return
		}
		if !advance(s) {
			open = append(open[:first], open[first+1:]...)
		}
	}
}

// ring keeps the last size entries.
type ring struct {
	size, next int
	entries    []entry
}

func (r *ring) add(e entry) {
	if len(r.entries) < r.size {
		r.entries = append(r.entries, e)
		return
	}
	r.entries[r.next] = e
	r.next = (r.next + 1) % r.size
}

func (r *ring) all() []entry {
	return append(append([]entry(nil), r.entries[r.next:]...), r.entries[:r.next]...)
}
