package kubernetes

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/openfaas/faas-provider/auth"
	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/faas-infer/faas-infer/command"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/async/queue"
	"github.com/faas-infer/faas-infer/provider/objects"
	"github.com/faas-infer/faas-infer/provider/peer"
)

// A provider without credentials may be addressed by the names of its Service, and by no
// others. That also holds for the routes of its other replicas.
func TestNamesOfTheService(t *testing.T) {
	f := providerFlags{service: "infer", namespace: "team", functions: provider.DefaultNamespace, pullPolicy: "Always", imagesLimit: "1"}
	if err := f.complete(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		host    string
		guarded bool
		status  int
	}{
		{"infer:8081", false, http.StatusServiceUnavailable}, {"infer.team:8081", false, http.StatusServiceUnavailable}, {"infer.team.svc:8081", false, http.StatusServiceUnavailable},
		{"infer.team.svc.cluster.local:8081", false, http.StatusServiceUnavailable}, {"10.0.0.7:8081", false, http.StatusServiceUnavailable},
		{"infer.other:8081", false, http.StatusMisdirectedRequest}, {"rebound.example.com:8081", false, http.StatusMisdirectedRequest},
		{"rebound.example.com:8081", true, http.StatusUnauthorized},
	} {
		p := &platform{flags: &f}
		if c.guarded {
			p.base = command.Base{Credentials: &auth.BasicAuthCredentials{User: "admin", Password: "secret"}}
		}
		p.group = peer.New(peer.Options{Credentials: p.base.Credentials, Logger: zerolog.Nop()})
		r := httptest.NewRequest("POST", peer.Prefix+"wake", strings.NewReader("{}"))
		r.Host = c.host
		w := httptest.NewRecorder()
		// 503: this replica is starting.
		if p.routes(http.NotFoundHandler()).ServeHTTP(w, r); w.Code != c.status {
			t.Errorf("%+v: %d %s", c, w.Code, w.Body)
		}
	}
}

// Functions that name no namespace are in the one that --functions-namespace gives, which needs
// no annotation.
func TestFunctionsNamespace(t *testing.T) {
	before := provider.DefaultNamespace
	t.Cleanup(func() { provider.DefaultNamespace, queue.DefaultNamespace = before, before })
	f := providerFlags{functions: "models", pullPolicy: "Always", imagesLimit: "1"}
	if err := f.complete(); err != nil {
		t.Fatal(err)
	}
	if full, err := queue.FullName("mnist"); err != nil || full != "mnist.models" {
		t.Errorf("asynchronous requests are for %q, %v", full, err)
	}
	for name, allowed := range map[string]bool{"models": true, before: false} {
		if got := objects.IsFunctionNamespace(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); got != allowed {
			t.Errorf("functions in namespace %s: %v", name, got)
		}
	}
	if f.functions = "Models!"; f.complete() == nil {
		t.Error("a name that no namespace can have was accepted")
	}
}
