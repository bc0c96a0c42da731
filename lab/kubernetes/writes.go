package kubernetes

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// writes counts the writes to the API server: the provider's at its connection, and those
// of all clients by the API server's metrics.
type writes struct {
	config *rest.Config

	mu sync.Mutex
	// own counts the provider's writes by kind.
	own map[string]int
}

// written has the writes in a period: the provider's number and kinds, and the number by
// the API server's metrics.
type written struct {
	own    int
	which  string
	server float64
}

func newWrites(config *rest.Config) *writes {
	return &writes{config: config, own: map[string]int{}}
}

// wrap counts a client's requests other than GET.
func (w *writes) wrap(next http.RoundTripper) http.RoundTripper { return &counting{w, next} }

type counting struct {
	writes *writes
	next   http.RoundTripper
}

// RoundTrip implements [http.RoundTripper].
func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		c.writes.add(r)
	}
	return c.next.RoundTrip(r)
}

func (w *writes) add(r *http.Request) {
	what := kind(r)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.own[what]++
}

// kind returns the method and the resource of a request, such as "PATCH pods/resize".
func kind(r *http.Request) string {
	// /api/v1/namespaces/NAMESPACE/RESOURCE/NAME/SUBRESOURCE, or with /apis/GROUP/VERSION.
	_, rest, _ := strings.Cut(r.URL.Path, "/namespaces/")
	parts := strings.Split(rest, "/")
	switch {
	case len(parts) < 2:
		return r.Method + " " + r.URL.Path
	case len(parts) > 3:
		return r.Method + " " + parts[1] + "/" + parts[3]
	}
	return r.Method + " " + parts[1]
}

// ours returns the number and the kinds of the provider's writes since the count before.
func (w *writes) ours(before map[string]int) (n int, which string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(w.own)) {
		if more := w.own[what] - before[what]; more > 0 {
			n += more
			parts = append(parts, fmt.Sprintf("%d × %s", more, what))
		}
	}
	return n, strings.Join(parts, ", ")
}

// now returns the present count of the provider's writes.
func (w *writes) now() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.own)
}

// during counts the writes while f runs.
func (w *writes) during(ctx context.Context, f func() error) (written, error) {
	before, err := w.server(ctx)
	if err != nil {
		return written{}, err
	}
	own := w.now()
	if err := f(); err != nil {
		return written{}, err
	}
	n, which := w.ours(own)
	after, err := w.server(ctx)
	return written{n, which, after - before}, err
}

// server returns the number of writes of all clients, from the API server's metrics.
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

// writing are the verbs of writes in the API server's metrics.
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

// memory returns this process's resident set and its peak, in MiB.
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
