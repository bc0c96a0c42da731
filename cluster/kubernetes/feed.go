package kubernetes

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/faas-infer/faas-infer/backoff"
	"github.com/faas-infer/faas-infer/cluster"
)

// ErrNoContent says that the content of an instance's model cannot be had now, so that the instance cannot start.
var ErrNoContent = errors.New("the model cannot be had")

const (
	// minFeedPause and maxFeedPause bound the pause after a connection to an instance that did not work.
	minFeedPause, maxFeedPause = 20 * time.Millisecond, 2 * time.Second
	// feedHeaderTimeout is how long an instance may take to answer once it has everything that was sent.
	feedHeaderTimeout = time.Minute
)

// newFeeder returns the client that brings a model to an instance. It connects with dial, or with a net.Dialer, over
// the instance's network: instances with a certificate take models over TLS only.
func newFeeder(
	dial func(ctx context.Context, network, address string) (net.Conn, error), network string,
) *http.Client {
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return dial(ctx, network, address)
		},
		ResponseHeaderTimeout: feedHeaderTimeout,
		WriteBufferSize:       1 << 16,
	}}
}

// feeding brings the model's content to a starting instance.
type feeding struct {
	spec cluster.InstanceSpec
	of   *Backend
	// sent has a token if something was sent lately, failed why the content cannot be had.
	sent   chan struct{}
	failed chan error
	// end ends it; nil before begin.
	end context.CancelFunc
}

func (e *entry) newFeeding() *feeding {
	e.backend.mu.Lock()
	defer e.backend.mu.Unlock()
	return &feeding{
		spec:   e.instance.InstanceSpec,
		of:     e.backend,
		sent:   make(chan struct{}, 1),
		failed: make(chan error, 1),
	}
}

// begin starts it once, if the instance's image does not have the model. Every replica that sees the instance start
// may call it: the instance takes each byte once.
func (f *feeding) begin(network, address string) {
	o := f.of.options
	if f.end != nil || o.Content == nil || o.Feed == nil || o.Content(f.spec) == "" {
		return
	}
	ctx, cancel := context.WithCancel(f.of.ctx)
	f.end = cancel
	client := newFeeder(o.Dial, network)
	f.of.background(func() { f.run(ctx, client, "http://"+address) })
}

// stop ends it.
func (f *feeding) stop() {
	if f.end != nil {
		f.end()
	}
}

// run sends until the instance has everything. A connection that breaks is no error: the instance may just have
// begun to listen, or have its model.
func (f *feeding) run(ctx context.Context, client *http.Client, address string) {
	note := func(int64) {
		select {
		case f.sent <- struct{}{}:
		default:
		}
	}
	for n := 1; ; n++ {
		err := f.of.options.Feed(ctx, client, f.spec, address, note)
		if err == nil || ctx.Err() != nil {
			return
		}
		if errors.Is(err, ErrNoContent) {
			f.failed <- err
			return
		}
		f.of.log.Debug().Err(err).Str("instance", string(f.spec.ID)).Msg("the model is not sent to the instance yet")
		if !backoff.Wait(ctx, backoff.Pause(n, minFeedPause, maxFeedPause)) {
			return
		}
	}
}
