// Package probe asks instances whether they serve, directly: a kubelet's probes are
// seconds apart, and that would be the cold start.
package probe

import (
	"context"
	"net"
	"net/http"
	"time"
)

const (
	// parallel is how many instances are asked at the same time; others wait.
	parallel = 64
	// patience is how long one may take to answer.
	patience = time.Second
)

// Prober asks instances. It is safe for concurrent use.
type Prober struct {
	client *http.Client
	turns  chan struct{}
}

// New returns a prober that connects by dial, net.Dialer's if nil.
func New(dial func(ctx context.Context, network, address string) (net.Conn, error)) *Prober {
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	return &Prober{
		client: &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial}},
		turns:  make(chan struct{}, parallel),
	}
}

// Ask reports whether what listens at an address answers 200 for a path.
func (p *Prober) Ask(ctx context.Context, address, path string) bool {
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
