package deployments

import (
	"context"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/faas-infer/faas-infer/backoff"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/keeper"
)

// instance is one pod of a function.
type instance struct {
	Pod
	// up: it could get requests. answers: the forwarder sends it some. wasReady: Kubernetes has
	// reported it as ready, so a later report that it is not ready counts.
	up, answers, wasReady bool
	// lost: it accepted no connection, whatever Kubernetes says. The controller probes
	// it until it answers.
	lost bool
	// stopProbing ends the probes, nil if the instance is not being probed.
	stopProbing context.CancelFunc
}

// endProbes ends the probes. The lock is held.
func (in *instance) endProbes() {
	if in.stopProbing != nil {
		in.stopProbing()
		in.stopProbing = nil
	}
}

// follow decides from a pod's state whether it gets requests. The lock is held.
func (fn *function) follow(in *instance) {
	switch {
	case in.Leaving:
		in.endProbes()
		if in.up {
			in.up = false
			fn.choose()
		}
	case in.Ready && !in.lost:
		in.endProbes()
		in.wasReady = true
		fn.raise(in)
	case in.wasReady && !in.Ready:
		// The kubelet's probe has failed: the instance wants no requests for now.
		in.wasReady, in.lost = false, false
		in.endProbes()
		if in.up {
			in.up = false
			fn.choose()
		}
		if in.Started && in.Address != "" {
			fn.probe(in)
		}
	case !in.up && in.Address != "" && (in.Started || in.lost):
		fn.probe(in)
	}
}

// raise lets an instance get requests. The lock is held.
func (fn *function) raise(in *instance) {
	if in.up || in.Address == "" {
		return
	}
	in.up, in.lost = true, false
	fn.choose()
	fn.controller.Wake()
}

// choose makes the forwarder send requests to the instances of one revision. The lock is held.
func (fn *function) choose() {
	pods, up := fn.controller.pods[fn.Name], map[uint64]int{}
	for _, in := range pods {
		if in.up {
			up[in.Revision]++
		}
	}
	fn.answering = answering(fn.answering, fn.Revision, up, fn.wanted())
	for _, in := range pods {
		switch answers := in.up && in.Revision == fn.answering; {
		case answers == in.answers:
		case answers:
			in.answers = true
			fn.forwarder.Up(in.ID, in.Network, in.Address, in.Revision)
		default:
			in.answers = false
			if in.Leaving {
				fn.lower(in)
			} else {
				fn.forwarder.Forget(in.ID) // It may come back.
			}
		}
	}
}

// answering returns the revision that answers from now on. before is the one that did, 0 if that is
// not known, and up counts the instances that could answer by revision. A revision never answers
// after a later one, unless deployed is an earlier one, because the later could not be stored.
func answering(before, deployed uint64, up map[uint64]int, wanted int) uint64 {
	latest, second := uint64(0), uint64(0)
	for r := range up {
		switch {
		case r > latest:
			latest, second = r, latest
		case r > second:
			second = r
		}
	}
	if before == 0 {
		before = second
	}
	returns := latest < before && deployed >= before
	if len(up) > 0 && !returns && keeper.HandOver(float64(up[latest]), float64(up[before]), float64(wanted)) {
		return latest
	}
	return before
}

// lower makes the forwarder send an instance nothing new. Its requests continue. The lock is held.
func (fn *function) lower(in *instance) {
	done, cancel := context.WithCancel(fn.controller.tasks.Context())
	cancel()
	_ = fn.forwarder.Drain(done, in.ID) // done has ended, so Drain does not wait: Kubernetes does.
}

// lost stops requests to an instance that accepts no connection, and probes it. Forwarders call it.
func (c *Controller) lost(name string, id cluster.InstanceID, cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fn, in := c.functions[name], c.pods[name][id]
	if fn == nil || in == nil || in.Leaving {
		return
	}
	c.options.Logger.Warn().Str("function", name).Str("instance", string(id)).AnErr("cause", cause).
		Msg("an instance accepts no connection; it gets no requests until it answers again")
	in.up, in.lost = false, true
	fn.choose()
	fn.probe(in)
	c.Wake()
}

const (
	// The pause between two probes of an instance doubles from firstProbePause to
	// maxProbePause.
	firstProbePause = 20 * time.Millisecond
	maxProbePause   = time.Second
	// probeTimeout bounds one probe.
	probeTimeout = time.Second
)

// probe probes an instance until it is ready. It leaves that to the kubelet if the function's
// probe has an initial delay or needs several successes, unless the instance was lost. The lock is
// held.
func (fn *function) probe(in *instance) {
	c := fn.controller
	if in.stopProbing != nil || fn.kubeletOnly && !in.lost {
		return
	}
	ctx, cancel := context.WithCancel(c.tasks.Context())
	in.stopProbing = cancel
	id, network, address, path := in.ID, in.Network, in.Address, fn.readyPath
	c.tasks.Begin(func() {
		defer cancel()
		if !c.answers(ctx, network, address, path) {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		// The function may have been removed or replaced meanwhile.
		if ctx.Err() != nil || c.functions[fn.Name] != fn {
			return
		}
		if in := c.pods[fn.Name][id]; in != nil && !in.Leaving && in.Address == address {
			in.stopProbing = nil
			fn.raise(in)
		}
	})
}

// answers probes an instance until it is ready; it returns false if ctx ends first.
func (c *Controller) answers(ctx context.Context, network, address, path string) bool {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return c.options.Dial(ctx, network, address)
	}}
	client := &http.Client{Transport: transport, Timeout: probeTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for n := 1; ; n++ {
		if ready(ctx, client, "http://"+address+path) {
			return true
		}
		if !backoff.Wait(ctx, backoff.Pause(n, firstProbePause, maxProbePause)) {
			return false
		}
	}
}

// ready probes an instance once, as the kubelet would.
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
