package deployments

import (
	"context"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// instance is one pod of a function.
type instance struct {
	Pod
	// up: the forwarder gives it requests. wasReady: Kubernetes has said that it is
	// ready, so that it counts when it says no more.
	up, wasReady bool
	// lost: it took no connection, whatever Kubernetes says. It is asked until it
	// answers.
	lost bool
	// asking ends the asking, nil if it is not asked.
	asking context.CancelFunc
}

// unask ends the asking. The lock is held.
func (in *instance) unask() {
	if in.asking != nil {
		in.asking()
		in.asking = nil
	}
}

// follow makes of a pod's state whether it gets requests. The lock is held.
func (fn *function) follow(in *instance) {
	switch {
	case in.Leaving:
		in.unask()
		if in.up {
			in.up = false
			fn.lower(in)
		}
	case in.Ready && !in.lost:
		in.unask()
		in.wasReady = true
		fn.raise(in)
	case in.wasReady && !in.Ready:
		// Kubernetes has heard from it that it takes nothing for now.
		in.wasReady, in.lost = false, false
		in.unask()
		if in.up {
			in.up = false
			fn.forwarder.Forget(in.ID)
		}
		if in.Started && in.Address != "" {
			fn.ask(in)
		}
	case !in.up && in.Address != "" && (in.Started || in.lost):
		fn.ask(in)
	}
}

// raise gives an instance requests. The lock is held.
func (fn *function) raise(in *instance) {
	if in.up || in.Address == "" {
		return
	}
	in.up, in.lost = true, false
	fn.forwarder.Up(in.ID, "tcp", in.Address)
	fn.controller.Wake()
}

// lower gives an instance nothing new. Its requests go on. The lock is held.
func (fn *function) lower(in *instance) {
	done, cancel := context.WithCancel(fn.controller.tasks.Context())
	cancel()
	_ = fn.forwarder.Drain(done, in.ID) // It is not waited for: Kubernetes does.
}

// lost is what a forwarder calls for an instance that takes no connection.
func (c *Controller) lost(name string, id cluster.InstanceID, cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fn, in := c.functions[name], c.pods[name][id]
	if fn == nil || in == nil || in.Leaving {
		return
	}
	c.options.Logger.Warn().Str("function", name).Str("instance", string(id)).AnErr("cause", cause).
		Msg("an instance takes no connection; it gets no requests until it answers again")
	in.up, in.lost = false, true
	fn.forwarder.Forget(id)
	fn.ask(in)
	c.Wake()
}

const (
	// firstAsk and lastAsk are the pauses between two questions to an instance
	// whether it is ready: each is twice the one before.
	firstAsk = 20 * time.Millisecond
	lastAsk  = time.Second
	// askPatience bounds one question.
	askPatience = time.Second
)

// ask asks an instance whether it is ready until it is, where the function has not
// said that it must be asked in another way than once. The lock is held.
func (fn *function) ask(in *instance) {
	c := fn.controller
	if in.asking != nil || fn.slowly && !in.lost {
		return
	}
	ctx, cancel := context.WithCancel(c.tasks.Context())
	in.asking = cancel
	id, address, path := in.ID, in.Address, fn.readyPath
	c.tasks.Begin(func() {
		defer cancel()
		if !c.answers(ctx, address, path) {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		// It may be another's turn by now, or nobody's.
		if ctx.Err() != nil || c.functions[fn.Name] != fn {
			return
		}
		if in := c.pods[fn.Name][id]; in != nil && !in.Leaving && in.Address == address {
			in.asking = nil
			fn.raise(in)
		}
	})
}

// answers waits until an instance says that it is ready; false if ctx ends.
func (c *Controller) answers(ctx context.Context, address, path string) bool {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return c.options.Dial(ctx, "tcp", address)
	}}
	client := &http.Client{Transport: transport, Timeout: askPatience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for pause := firstAsk; ; pause = min(2*pause, lastAsk) {
		if ready(ctx, client, "http://"+address+path) {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pause):
		}
	}
}

// ready asks once, as the kubelet would.
func ready(ctx context.Context, client *http.Client, url string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	answer, err := client.Do(request)
	if err != nil {
		return false
	}
	_, _ = io.CopyN(io.Discard, answer.Body, 1<<10)
	_ = answer.Body.Close()
	return answer.StatusCode >= 200 && answer.StatusCode < 400
}
