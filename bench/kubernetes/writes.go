package kubernetes

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// writes counts what is written to the API server: by the provider, at its
// connection, and by all, as the API server counts.
type writes struct {
	config *rest.Config
	counts atomic.Int64
}

// written is what was written in a while.
type written struct {
	own    int
	server float64
}

func newWrites(config *rest.Config) *writes { return &writes{config: config} }

// wrap counts the requests of a client that change something.
func (w *writes) wrap(next http.RoundTripper) http.RoundTripper { return &counting{w, next} }

type counting struct {
	writes *writes
	next   http.RoundTripper
}

// RoundTrip implements [http.RoundTripper].
func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		c.writes.counts.Add(1)
	}
	return c.next.RoundTrip(r)
}

func (w *writes) own() int { return int(w.counts.Load()) }

// during counts while f runs.
func (w *writes) during(ctx context.Context, f func() error) (written, error) {
	before, err := w.server(ctx)
	if err != nil {
		return written{}, err
	}
	own := w.own()
	if err := f(); err != nil {
		return written{}, err
	}
	own = w.own() - own
	after, err := w.server(ctx)
	return written{own, after - before}, err
}

// server adds up the writes that the API server has been asked for.
func (w *writes) server(ctx context.Context) (float64, error) {
	client, err := kubernetes.NewForConfig(w.config)
	if err != nil {
		return 0, fmt.Errorf("connect to the API server: %w", err)
	}
	text, err := client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, fmt.Errorf("read the API server's metrics: %w", err)
	}
	return sumWrites(text)
}

// writing are the verbs of requests that change something.
var writing = []string{`verb="POST"`, `verb="PUT"`, `verb="PATCH"`, `verb="APPLY"`, `verb="DELETE"`, `verb="DELETECOLLECTION"`}

func sumWrites(text []byte) (sum float64, err error) {
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		line := s.Text()
		if !strings.HasPrefix(line, "apiserver_request_total{") {
			continue
		}
		for _, verb := range writing {
			if !strings.Contains(line, verb) {
				continue
			}
			n, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
			if err != nil {
				return 0, fmt.Errorf("the API server's metrics: %w", err)
			}
			sum += n
		}
	}
	return sum, nil
}

// memory is this process' resident set and the highest that it was, in MiB.
func memory() (resident, peak float64, err error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		kib, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
		if err != nil {
			continue
		}
		switch name {
		case "VmRSS":
			resident = kib / 1024
		case "VmHWM":
			peak = kib / 1024
		}
	}
	return resident, peak, nil
}
