package kubernetes

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/command"
)

// said collects what the parts of a provider log at the same time.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements [io.Writer].
func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

// String is what was logged so far.
func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// lateServer is an empty API server that does not know functions, and allows no reading of
// ConfigMaps, for the first tries.
type lateServer struct{ functions, configMaps atomic.Int32 }

// ServeHTTP answers lists with nothing, and watches never.
func (s *lateServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resource, query := path.Base(r.URL.Path), r.URL.Query()
	status := http.StatusOK
	switch {
	case query.Has("sendInitialEvents"):
		status = http.StatusUnprocessableEntity
	case query.Has("watch"):
		<-r.Context().Done()
		return
	case resource == "functions" && s.functions.Add(1) <= 2:
		status = http.StatusNotFound
	case resource == "configmaps" && s.configMaps.Add(1) <= 2:
		status = http.StatusForbidden
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if status != http.StatusOK {
		reason := map[int]string{404: "NotFound", 403: "Forbidden", 422: "Invalid"}[status]
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, reason, status)
		return
	}
	kinds := map[string][2]string{"functions": {"FunctionList", "faas-infer.dev/v1alpha1"}, "namespaces": {"NamespaceList", "v1"}, "configmaps": {"ConfigMapList", "v1"}}
	fmt.Fprintf(w, `{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"1"},"items":[]}`, kinds[resource][0], kinds[resource][1])
}

// A provider that is installed together with its resource and its rights may start before
// the API server has taken them in. It waits and says for what.
func TestStartWaits(t *testing.T) {
	server := httptest.NewServer(&lateServer{})
	defer server.Close()
	kubeconfig := filepath.Join(t.TempDir(), "config")
	text := fmt.Sprintf(`{"clusters":[{"name":"c","cluster":{"server":%q}}],"contexts":[{"name":"c","context":{"cluster":"c"}}],"current-context":"c"}`, server.URL)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	log := &said{}
	p := &platform{flags: &providerFlags{namespace: "openfaas", lease: "faas-infer", pod: "a"}, base: command.Base{Log: zerolog.New(log)}}
	ctx, cancel := context.WithCancel(t.Context())
	p.ctx = ctx
	var err error
	if p.clients, err = connect(kubeconfig); err != nil {
		t.Fatal(err)
	}
	opening, done := context.WithTimeout(ctx, time.Minute)
	defer done()
	if err := p.openObjects(opening); err != nil {
		t.Errorf("the provider does not start: %v", err)
	}
	for _, want := range []string{"run kubectl apply -f yaml/crd.yaml", "profiles and corrections could not be read"} {
		if strings.Count(log.String(), want) != 1 {
			t.Errorf("the log does not say %q once:\n%s", want, log.String())
		}
	}
	cancel()
	if err := p.close(); err != nil {
		t.Error(err)
	}
}
