package kubernetes

import (
	"context"
	"net"
	"net/http"
	"time"
)

const (
	// maxProbes is how many probes run at the same time; others wait.
	maxProbes = 64
	// probeTimeout is how long an instance may take to answer.
	probeTimeout = time.Second
)

// prober asks instances whether they are ready. It is safe for concurrent use.
type prober struct {
	client *http.Client
	turns  chan struct{}
}

// newProber returns a prober that connects with dial, or with a net.Dialer if dial is nil.
func newProber(dial func(ctx context.Context, network, address string) (net.Conn, error)) *prober {
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	return &prober{
		client: &http.Client{Timeout: probeTimeout, Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial}},
		turns:  make(chan struct{}, maxProbes),
	}
}

// Ask reports whether the server at an address answers 200 for a path.
func (p *prober) Ask(ctx context.Context, address, path string) bool {
	select {
	case p.turns <- struct{}{}:
		defer func() { <-p.turns }()
	case <-ctx.Done():
		return false
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return false
	}
	response, err := p.client.Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}
