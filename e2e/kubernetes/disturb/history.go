package disturb

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// samplePeriod is the time between two looks at the API server's version.
	samplePeriod = 200 * time.Millisecond
	// remembered is how far back they go; etcd's history is shorter.
	remembered = 5 * time.Minute
	// firstPatience is how long the API server may take to tell its first.
	firstPatience = time.Minute
)

// history knows which version the API server was at when.
type history struct {
	ask func(ctx context.Context) (string, error)

	mu      sync.Mutex
	samples []sample
}

type sample struct {
	at      time.Time
	version string
}

// keep looks at the version while it is wanted, until ctx ends.
func (h *history) keep(ctx context.Context, wanted func() bool) {
	ticks := time.NewTicker(samplePeriod)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticks.C:
			if !wanted() {
				continue
			}
			if version, err := h.ask(ctx); err == nil {
				h.add(now, version)
			}
		}
	}
}

func (h *history) add(now time.Time, version string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.samples = append(h.samples, sample{now, version})
	for len(h.samples) > 1 && now.Sub(h.samples[0].at) > remembered {
		h.samples = h.samples[1:]
	}
}

// before is the latest version that is at least as old as at, or else the oldest
// that is known; "" if none is.
func (h *history) before(at time.Time) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	version := ""
	for i, s := range h.samples {
		if i > 0 && s.at.After(at) {
			break
		}
		version = s.version
	}
	return version
}

// begin has the history begin now, so that the first list can be of the past.
func (p *Proxy) begin() error {
	ctx, cancel := context.WithTimeout(p.ctx, firstPatience)
	defer cancel()
	version, err := p.version(ctx)
	if err == nil {
		p.history.add(time.Now(), version)
	}
	return err
}

// remembers reports whether the plan has lists of the past.
func (p *Proxy) remembers() bool { return p.present().List.Stale > 0 }

// version asks the API server which version it is at.
func (p *Proxy) version(ctx context.Context) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.upstream.String()+"/api/v1/namespaces?limit=1", nil)
	if err != nil {
		return "", err
	}
	r.Header.Set("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
	response, err := p.transport.RoundTrip(r)
	if err != nil {
		return "", fmt.Errorf("ask for the version: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("ask for the version: the API server answers %s", response.Status)
	}
	var list struct{ Metadata metav1.ListMeta }
	if err := json.NewDecoder(response.Body).Decode(&list); err != nil {
		return "", fmt.Errorf("ask for the version: %w", err)
	}
	return list.Metadata.ResourceVersion, nil
}

// age makes a list that accepts any age show the past: the API server itself
// answers with what was there at an earlier version.
func (p *Proxy) age(r *http.Request, age time.Duration) {
	version := p.history.before(time.Now().Add(-age))
	if version == "" {
		return
	}
	query := r.URL.Query()
	query.Set("resourceVersion", version)
	query.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchExact))
	query.Del("limit") // With version 0 there is no limit, either.
	r.URL.RawQuery = query.Encode()
	p.count(func(c *Counts) { c.Stale++ })
}
