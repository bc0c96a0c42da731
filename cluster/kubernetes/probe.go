package kubernetes

import (
	"context"
	"net"
	"net/http"
	"time"
)

const (
	// parallel is how many instances are asked at the same time; others wait.
	parallel = 64
	// probePatience is how long one may take to answer.
	probePatience = time.Second
)

// prober asks instances. It is safe for concurrent use.
type prober struct {
	client *http.Client
	turns  chan struct{}
}

// newProber returns a prober that connects by dial, net.Dialer's if nil.
func newProber(dial func(ctx context.Context, network, address string) (net.Conn, error)) *prober {
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	return &prober{
		client: &http.Client{Timeout: probePatience, Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial}},
		turns:  make(chan struct{}, parallel),
	}
}

// Ask reports whether what listens at an address answers 200 for a path.
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
