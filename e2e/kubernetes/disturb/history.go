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
	// samplePeriod is the time between two samples of the API server's version.
	samplePeriod = 200 * time.Millisecond
	// remembered is how long samples are kept; etcd's history is shorter.
	remembered = 5 * time.Minute
	// firstPatience is how long the first sample may take.
	firstPatience = time.Minute
)

// history has samples of the API server's version over time.
type history struct {
	ask func(ctx context.Context) (string, error)

	mu      sync.Mutex
	samples []sample
}

type sample struct {
	at      time.Time
	version string
}

// keep takes samples while wanted returns true, until ctx ends.
func (h *history) keep(ctx context.Context, wanted func() bool) {
	ticks := time.Tick(samplePeriod)
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticks:
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

// before returns the latest version that is at least as old as at, otherwise the oldest
// known version; "" if there is none.
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

// begin takes the first sample, to make even the first list stale if the plan says so.
func (p *Proxy) begin() error {
	ctx, cancel := context.WithTimeout(p.ctx, firstPatience)
	defer cancel()
	version, err := p.version(ctx)
	if err == nil {
		p.history.add(time.Now(), version)
	}
	return err
}

// remembers reports whether the plan has stale lists.
func (p *Proxy) remembers() bool { return p.present().List.Stale > 0 }

// version asks the API server for its present version.
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

// age changes a request for a list of any age: the API server then answers with the state
// of an earlier version.
func (p *Proxy) age(r *http.Request, age time.Duration) {
	version := p.history.before(time.Now().Add(-age))
	if version == "" {
		return
	}
	query := r.URL.Query()
	query.Set("resourceVersion", version)
	query.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchExact))
	query.Del("limit") // The API server ignores the limit with version 0 too.
	r.URL.RawQuery = query.Encode()
	p.count(func(c *Counts) { c.Stale++ })
}
