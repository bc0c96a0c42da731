package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/rig"
)

// survive queues messages with callbacks through the gateway. Meanwhile it kills the
// provider with SIGKILL and restarts it several times. It counts the messages whose
// callback never comes.
func survive(ctx context.Context, o rig.Options, r *report.Report, a Async) error {
	s, err := rig.NewSubject("identity")
	if err != nil {
		return err
	}
	defer s.Close()
	q, err := queue(ctx, o, s, time.Second, 0)
	if err != nil {
		return err
	}
	defer func() { q.close() }()
	c, err := newCallbacks(a.Messages)
	if err != nil {
		return err
	}
	defer c.close()
	fmt.Fprintf(o.Log, "queueing %d requests and killing the provider %d times\n", a.Messages, a.Kills)
	began := time.Now()
	published := make(chan error, 1)
	publishing, stop := context.WithCancel(ctx)
	defer stop()
	go func() { published <- q.publish(publishing, s, c.url, a.Messages) }()
	if err := q.killAsAnswered(ctx, c, a); err != nil {
		return err
	}
	if err := <-published; err != nil {
		return err
	}
	if err := c.all(ctx); err != nil {
		return err
	}
	note := fmt.Sprintf("of %d accepted requests, the provider killed %d times", a.Messages, a.Kills)
	r.Add("async.lost", float64(a.Messages-int(c.unique.Load())), "requests", note+": no callback came")
	r.Add("async.failed", float64(c.failed.Load()), "requests", "called back with another status than 200")
	r.Add("async.duplicates", float64(c.total.Load()-c.unique.Load()), "requests", "callbacks beyond the first")
	r.Add("async.called_back_rps", float64(c.unique.Load())/time.Since(began).Seconds(), "requests/s", "queued, executed and called back, over the kills")
	return nil
}

// killAsAnswered kills and restarts the provider a.Kills times, evenly spread over the
// callbacks.
func (q *queued) killAsAnswered(ctx context.Context, c *callbacks, a Async) error {
	for kill := range a.Kills {
		for int(c.unique.Load()) < (kill+1)*a.Messages/(a.Kills+1) {
			if err := rig.Pause(ctx, 5*time.Millisecond); err != nil {
				return err
			}
			if c.stalled() {
				return nil // The missing callbacks are lost or stuck.
			}
		}
		_ = q.Process.Kill()
		<-q.Exited()
		if err := q.start(ctx, 0); err != nil {
			return err
		}
	}
	return nil
}

// publish sends every message until the gateway accepts it.
func (q *queued) publish(ctx context.Context, s *rig.Subject, callback string, messages int) error {
	target, err := s.Target(q.gateway + "/async-function/" + rig.FunctionName)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: senders}, Timeout: 30 * time.Second}
	defer client.CloseIdleConnections()
	var next atomic.Int64
	var wait sync.WaitGroup
	for range senders {
		wait.Go(func() {
			for i := next.Add(1) - 1; i < int64(messages) && ctx.Err() == nil; i = next.Add(1) - 1 {
				for !send(ctx, client, target.URL, target.Header, target.Body(int(i)), callback, i) && ctx.Err() == nil {
					_ = rig.Pause(ctx, 50*time.Millisecond)
				}
			}
		})
	}
	wait.Wait()
	return ctx.Err()
}

// send sends message i and reports whether the gateway accepted it.
func send(ctx context.Context, client *http.Client, url string, header http.Header, body []byte, callback string, i int64) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return false
	}
	request.Header = header.Clone()
	request.Header.Set("X-Callback-Url", callback)
	request.Header.Set("X-Call-Id", strconv.FormatInt(i, 10))
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode == http.StatusAccepted
}

// callbacks is a server that receives and counts callbacks.
type callbacks struct {
	url    string
	server *http.Server
	// seen has the number of callbacks of each message.
	seen                  []atomic.Int32
	unique, total, failed atomic.Int64
	// last is the time of the latest first callback of a message, in ns since 1970.
	last atomic.Int64
}

// patience is how long callbacks may pause before the missing ones count as lost. It is
// longer than any pause between two tries.
const patience = 3 * time.Minute

func newCallbacks(messages int) (*callbacks, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &callbacks{url: "http://" + l.Addr().String() + "/", seen: make([]atomic.Int32, messages)}
	c.last.Store(time.Now().UnixNano())
	c.server = &http.Server{Handler: c}
	go func() { _ = c.server.Serve(l) }()
	return c, nil
}

func (c *callbacks) close() { _ = c.server.Close() }

// ServeHTTP receives one callback.
func (c *callbacks) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	i, err := strconv.Atoi(r.Header.Get("X-Call-Id"))
	if err != nil || i < 0 || i >= len(c.seen) {
		return
	}
	c.total.Add(1)
	if status := r.Header.Get("X-Function-Status"); status != "200" {
		c.failed.Add(1)
	}
	if c.seen[i].Add(1) == 1 {
		c.unique.Add(1)
		c.last.Store(time.Now().UnixNano())
	}
}

func (c *callbacks) stalled() bool {
	return time.Since(time.Unix(0, c.last.Load())) > patience
}

// all waits until every message has been called back, or callbacks have stalled.
func (c *callbacks) all(ctx context.Context) error {
	for int(c.unique.Load()) < len(c.seen) && !c.stalled() {
		if err := rig.Pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}
