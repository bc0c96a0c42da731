package disturb

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// patience is how long each step may take on a busy machine.
const patience = time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// upstream is the server behind the proxy. It sends events of config maps as a test asks
// for, and records the other requests.
type upstream struct {
	*httptest.Server
	events chan string

	mu    sync.Mutex
	asked []string
}

func newUpstream(t *testing.T) *upstream {
	u := &upstream{events: make(chan string)}
	u.Server = httptest.NewTLSServer(http.HandlerFunc(u.serve))
	t.Cleanup(u.Close)
	return u
}

func (u *upstream) serve(w http.ResponseWriter, r *http.Request) {
	u.mu.Lock()
	u.asked = append(u.asked, r.Method+" "+r.URL.RequestURI())
	u.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if !isTrue(r.URL.Query().Get("watch")) {
		fmt.Fprint(w, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}`)
		return
	}
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	for {
		select {
		case name, ok := <-u.events:
			if !ok {
				return
			}
			object := corev1.ConfigMap{TypeMeta: metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Name: name}}
			raw, _ := json.Marshal(object)
			fmt.Fprintf(w, `{"type":"ADDED","object":%s}`+"\n", raw)
			_ = http.NewResponseController(w).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

// requests returns the recorded requests, one line each.
func (u *upstream) requests() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]string(nil), u.asked...)
}

func (u *upstream) config() *rest.Config {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: u.Certificate().Raw})
	return &rest.Config{Host: u.URL, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

// rig is a client of a proxy in front of the upstream.
type rig struct {
	*Proxy
	t        *testing.T
	upstream *upstream
	client   *kubernetes.Clientset
}

func newRig(t *testing.T, plan Plan) *rig {
	t.Helper()
	u := newUpstream(t)
	p, err := Start(u.config(), plan)
	if err != nil {
		t.Fatal(err)
	}
	config := p.Config()
	config.ContentType = "application/json" // The upstream speaks nothing else.
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfigAndClient(config, http)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		http.CloseIdleConnections()
	})
	return &rig{p, t, u, client}
}

// watch begins a watch.
func (r *rig) watch() watch.Interface {
	r.t.Helper()
	w, err := r.client.CoreV1().ConfigMaps("x").Watch(r.t.Context(), metav1.ListOptions{ResourceVersion: "1"})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(w.Stop)
	return w
}

// tell makes the upstream send events of config maps.
func (r *rig) tell(names ...string) {
	r.t.Helper()
	for _, name := range names {
		select {
		case r.upstream.events <- name:
		case <-time.After(patience):
			r.t.Fatalf("nobody takes the event of %s", name)
		}
	}
}

// got returns the name of the next event's object, "ended", or a description of any other
// event.
func (r *rig) got(w watch.Interface) string {
	r.t.Helper()
	select {
	case e, ok := <-w.ResultChan():
		if !ok {
			return "ended"
		}
		switch o := e.Object.(type) {
		case *corev1.ConfigMap:
			return o.Name
		case *metav1.Status:
			return fmt.Sprint(e.Type, " ", o.Code)
		}
		return fmt.Sprintf("%s of a %T", e.Type, e.Object)
	case <-time.After(patience):
		r.t.Fatalf("no event within %v", patience)
		return ""
	}
}

// want checks the next events.
func (r *rig) want(w watch.Interface, names ...string) {
	r.t.Helper()
	for _, name := range names {
		if got := r.got(w); got != name {
			r.t.Fatalf("the next event is %q, want %q", got, name)
		}
	}
}
