package disturb

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"
)

// ending is the way in which the proxy ends a watch.
type ending int

const (
	// broken breaks the connection.
	broken ending = iota
	// expired sends a last event with 410.
	expired
)

// opened is an open watch.
type opened struct {
	path string
	end  chan ending
	// initial is set while the watch sends the existing objects, as a list would.
	initial bool
}

// initialEnd marks the event after the existing objects.
var initialEnd = []byte("k8s.io/initial-events-end")

// watch forwards a watch, event by event.
func (p *Proxy) watch(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	response, err := p.transport.RoundTrip(p.outgoing(r).WithContext(ctx))
	if err != nil {
		panic(http.ErrAbortHandler) // The client sees a failed connection.
	}
	defer response.Body.Close()
	for name, values := range response.Header {
		if !strings.EqualFold(name, "Content-Length") {
			w.Header()[name] = values
		}
	}
	out := http.NewResponseController(w)
	frames, known := newFraming(response.Header.Get("Content-Type"), response.Body)
	if response.StatusCode != http.StatusOK || !known {
		w.WriteHeader(response.StatusCode)
		_ = out.Flush()
		_, _ = io.Copy(w, response.Body)
		return
	}
	open := &opened{path: r.URL.Path, end: make(chan ending, 1), initial: isTrue(r.URL.Query().Get("sendInitialEvents"))}
	// enter precedes the answer: Cut must reach every watch that a client sees as open.
	s := &stream{proxy: p, watch: open, frames: frames, ctx: ctx, out: w, flush: out.Flush, chances: p.enter(open)}
	defer p.leave(open)
	w.WriteHeader(response.StatusCode)
	_ = out.Flush()
	s.run()
}

// stream is a watch between the API server and a client.
type stream struct {
	proxy   *Proxy
	watch   *opened
	frames  framing
	ctx     context.Context
	out     io.Writer
	flush   func() error
	chances *rand.Rand
	// unseen fires when the watch must end because of a dropped event.
	unseen <-chan time.Time
}

// run forwards events until the watch ends. A panic breaks the connection.
func (s *stream) run() {
	events := make(chan []byte)
	s.proxy.work.Go(func() {
		defer close(events)
		for {
			event, err := s.frames.next()
			if err != nil {
				return
			}
			select {
			case events <- event:
			case <-s.ctx.Done():
				return
			}
		}
	})
	for {
		select {
		case <-s.ctx.Done():
			panic(http.ErrAbortHandler)
		case how := <-s.watch.end:
			s.finish(how)
			return
		case <-s.unseen:
			s.finish(expired)
			return
		case event, ok := <-events:
			if !ok {
				if s.unseen != nil {
					s.finish(expired)
				}
				return
			}
			if s.pass(event) {
				return
			}
		}
	}
}

// pass disturbs and delivers an event. It returns true if the watch has ended.
func (s *stream) pass(event []byte) (end bool) {
	plan := s.proxy.present()
	if s.watch.initial || !plan.on(s.watch.path) {
		s.watch.initial = s.watch.initial && !bytes.Contains(event, initialEnd)
		s.deliver(event)
		return false
	}
	do := plan.Watch.event(s.chances)
	s.proxy.count(func(c *Counts) { c.add(do) })
	if !s.wait(do.delay) {
		return false // run handles the reason.
	}
	if do.drop {
		if s.unseen == nil {
			s.unseen = time.After(plan.Watch.Unseen)
		}
		return false
	}
	s.deliver(event)
	if do.duplicate {
		s.deliver(event)
	}
	switch {
	case do.expire:
		s.finish(expired)
	case do.cut:
		s.finish(broken)
	}
	return do.expire || do.cut
}

// wait holds the stream back for a delay and while the proxy is frozen. It returns false if
// the watch ended meanwhile.
func (s *stream) wait(delay time.Duration) bool {
	if delay > 0 {
		timer := time.After(delay)
		select {
		case <-timer:
		case <-s.ctx.Done():
			return false
		}
	}
	select {
	case <-s.proxy.flowing():
		return true
	case how := <-s.watch.end:
		s.watch.end <- how
		return false
	case <-s.ctx.Done():
		return false
	}
}

// finish ends the watch. After a dropped event it always ends with 410: a broken connection
// would hide the drop.
func (s *stream) finish(how ending) {
	if how == broken && s.unseen == nil {
		s.proxy.count(func(c *Counts) { c.Broken++ })
		panic(http.ErrAbortHandler)
	}
	event, err := s.frames.expired()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	s.proxy.count(func(c *Counts) { c.Expired++ })
	s.deliver(event)
	s.unseen = nil
}

// deliver writes an event to the client.
func (s *stream) deliver(event []byte) {
	if _, err := s.out.Write(event); err != nil {
		panic(http.ErrAbortHandler)
	}
	if err := s.flush(); err != nil {
		panic(http.ErrAbortHandler)
	}
}
