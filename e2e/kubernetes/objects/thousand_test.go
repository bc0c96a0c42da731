package objects

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/client"
	"github.com/faas-infer/faas-infer/provider/objects"
)

// counted counts requests.
type counted struct {
	http.RoundTripper
	n *atomic.Int64
}

func (c counted) RoundTrip(r *http.Request) (*http.Response, error) {
	c.n.Add(1)
	return c.RoundTripper.RoundTrip(r)
}

// A cluster has 1,000 namespaces of functions. The provider opens in a moment, since it lists each
// kind of object once, and checks its rights with one question for each namespace at most. The
// namespaces stay: it is the last test of this package that lists them.
func TestThousandNamespaces(t *testing.T) {
	const n = 1000
	config := cluster.Config()
	config.QPS = -1
	admin := clientOf(t, config)
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("many-%03d", i))
	}
	began := time.Now()
	var all sync.WaitGroup
	tokens := make(chan struct{}, 16)
	for _, name := range names {
		tokens <- struct{}{}
		all.Go(func() {
			defer func() { <-tokens }()
			of := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{objects.NamespaceAnnotation: "1"}}}
			if _, err := admin.CoreV1().Namespaces().Create(t.Context(), of, metav1.CreateOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	// A measure of the machine: what follows asks the API server less than this.
	made := time.Since(began)
	t.Logf("made %d namespaces in %v", n, made)
	kubectl(t, "", "create", "clusterrole", "many", "--verb=get,list,watch,create,delete,patch,update", "--resource=functions.faas-infer.dev,namespaces,nodes,pods,deployments.apps,secrets")
	kubectl(t, "", "create", "rolebinding", "many", "-n", names[7], "--clusterrole=many", "--user=many")

	ctx, cancel := context.WithCancel(context.Background())
	began = time.Now()
	o, err := objects.Open(ctx, ctx, objects.Options{Config: config, Client: admin, Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	opened := time.Since(began)
	if known := len(o.Names()); known < n {
		t.Errorf("%d namespaces are known", known)
	}
	cancel()
	o.Close()
	t.Logf("opened in %v", opened)
	if opened > max(10*time.Second, made) {
		t.Errorf("opened in %v", opened)
	}

	var requests atomic.Int64
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counted{next, &requests} })
	check := func(who string, most int64) []client.Missing {
		t.Helper()
		as := *config
		as.Impersonate.UserName = who
		requests.Store(0)
		began := time.Now()
		missing, err := client.CheckAccess(t.Context(), clientOf(t, &as), client.Needs(), "openfaas", names)
		if err != nil {
			t.Fatal(err)
		}
		took := time.Since(began)
		t.Logf("%q: %d requests in %v, %d rights are missing", who, requests.Load(), took, len(missing))
		if requests.Load() > most || took > max(30*time.Second, 3*made) {
			t.Errorf("%q: %d requests in %v", who, requests.Load(), took)
		}
		return missing
	}
	if missing := check("", 100); len(missing) != 0 {
		t.Errorf("the administrator lacks %v", missing)
	}
	// One with rights in one namespace only has them there.
	for _, m := range check("many", n+100) {
		if m.Namespace == names[7] && (m.Resource == "secrets" || m.Resource == "pods") {
			t.Errorf("there: %v", m)
		}
	}
}
