package kubernetes

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/instance/copies"
	"github.com/faas-infer/faas-infer/model/content"
)

// aNode is a node's agent and the content of which instances on it wait.
type aNode struct {
	root   string
	source content.Source
	agents *agents
	here   bool
	sends  atomic.Int64
	puts   atomic.Int64
}

// newNode serves the agent of node n for the namespace fn.
func newNode(t *testing.T) *aNode {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "model.onnx"), make([]byte, 3<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	index, err := content.IndexOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	n := &aNode{root: t.TempDir(), source: content.Source{Index: index, Dir: dir}}
	if err := os.Mkdir(filepath.Join(n.root, "fn"), 0o777); err != nil {
		t.Fatal(err)
	}
	life, cancel := context.WithCancel(t.Context())
	tidier := &copies.Tidier{Root: n.root, Namespaces: []string{"fn"}, Unused: time.Hour, Size: 1 << 30}
	models := &copies.Models{Tidier: tidier, Log: zerolog.Nop(), Context: life}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			n.puts.Add(1)
		}
		models.ServeHTTP(w, r)
	}))
	var work sync.WaitGroup
	n.agents = newAgents(life, work.Go, func(string, string) bool { return n.here }, func(context.Context, string, string) (content.Source, error) {
		n.sends.Add(1)
		return n.source, nil
	})
	n.agents.addresses["n"] = server.URL
	t.Cleanup(func() {
		server.Close()
		cancel()
		work.Wait()
	})
	return n
}

func (n *aNode) spot() spot { return spot{"n", "fn", n.source.Index.Name()} }

// All that want a content on a node wait for one sending.
func TestAgentsSendOnce(t *testing.T) {
	n := newNode(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			s, err := n.agents.send(n.spot(), "f.fn", false)
			if err != nil {
				t.Error(err)
				return
			}
			if <-s.done; s.err != nil {
				t.Error(s.err)
			}
		})
	}
	all.Wait()
	if got := n.puts.Load(); got != 2 || n.sends.Load() != 1 {
		t.Errorf("%d requests for one index and its bytes, %d readings", got, n.sends.Load())
	}
	if _, err := n.agents.send(spot{"m", "fn", n.spot().content}, "f.fn", false); !errors.Is(err, errNoAgent) {
		t.Errorf("a node without an agent: %v", err)
	}
}

// Ahead of instances nothing is downloaded.
func TestAgentsSendAhead(t *testing.T) {
	n := newNode(t)
	for _, want := range []error{errNotHere, nil} {
		s, err := n.agents.send(n.spot(), "f.fn", true)
		if err != nil {
			t.Fatal(err)
		}
		if <-s.done; !errors.Is(s.err, want) {
			t.Errorf("here: %v, it ends with %v", n.here, s.err)
		}
		n.here = true
	}
}

// An agent that cannot be reached is left alone for a while, and one with another address is asked at once.
func TestAgentsThatAreAway(t *testing.T) {
	n := newNode(t)
	good := n.agents.addresses["n"]
	n.agents.addresses["n"] = "http://127.0.0.1:1"
	s, err := n.agents.send(n.spot(), "f.fn", false)
	if err != nil {
		t.Fatal(err)
	}
	if <-s.done; s.err == nil {
		t.Error("it has sent the content to nobody")
	}
	if n.agents.at("n") != "" {
		t.Error("it asks the agent again")
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "n"}, Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.7"}}
	n.agents.see(pod, false)
	if got := n.agents.at("n"); got != "http://10.0.0.7:8080" {
		t.Errorf("the agent is at %q, its first one at %s", got, good)
	}
	n.agents.see(pod, true)
	if got := n.agents.at("n"); got != "" {
		t.Errorf("the agent of a deleted pod is at %q", got)
	}
}

// An agent that refuses one content takes others. A sending that is under way is joined, whatever becomes of the agent.
func TestAgentsThatRefuse(t *testing.T) {
	n := newNode(t)
	busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "4 models arrive already", http.StatusServiceUnavailable)
	}))
	defer busy.Close()
	n.agents.addresses["n"] = busy.URL
	s, err := n.agents.send(n.spot(), "f.fn", false)
	if err != nil {
		t.Fatal(err)
	}
	if <-s.done; s.err == nil || n.agents.at("n") != busy.URL {
		t.Errorf("after %v the agent is at %q", s.err, n.agents.at("n"))
	}
	under := &sending{done: make(chan struct{})}
	n.agents.sendings[n.spot()], n.agents.away["n"] = under, time.Now()
	if s, err := n.agents.send(n.spot(), "f.fn", false); err != nil || s != under {
		t.Errorf("the sending is not joined: %v", err)
	}
}

// waiting is an instance that waits for its model. It may look for it on its node.
func waiting(t *testing.T, n *aNode, looks bool) (address string) {
	t.Helper()
	r, err := content.NewReceiver(t.TempDir(), n.source.Index.Name())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	work.Go(func() { _, _ = r.Wait(ctx) })
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		here, err := filepath.Glob(filepath.Join(n.root, "fn", "*", "content-*"))
		if looks && err == nil && len(here) > 0 {
			http.NotFound(w, q) // It serves its model.
			return
		}
		r.ServeHTTP(w, q)
	}))
	t.Cleanup(func() {
		server.Close()
		cancel()
		work.Wait()
	})
	return server.URL
}

// The node of an instance gets the model, and the instance does if it does not find it there.
func TestModelsGoToNodes(t *testing.T) {
	for _, looks := range []bool{true, false} {
		n := newNode(t)
		name := n.source.Index.Name()
		u := &uris{platform: &platform{flags: &providerFlags{copies: []string{"fn"}}}, agents: n.agents}
		u.platform.base.Log = zerolog.Nop()
		u.downloads = nil
		spec := cluster.InstanceSpec{ID: "f-1", Function: "f.fn", Node: "n", Artefact: cluster.Artefact{Model: inContent("model.onnx", name)}}
		address := waiting(t, n, looks)
		if got := u.toNode(t.Context(), http.DefaultClient, spec, address, func(int64) {}); got != looks {
			t.Errorf("the instance looks: %v, it has its model: %v", looks, got)
		}
		if got := n.puts.Load(); got != 2 {
			t.Errorf("the node has got %d requests", got)
		}
		if looks {
			continue
		}
		if err := u.toInstance(t.Context(), http.DefaultClient, spec, address, n.source, func(int64) {}); err != nil {
			t.Error(err)
		}
		if got := u.progress("f.fn"); got != "the model is being sent: pod f-1 has 3 of 3 MB" {
			t.Errorf("it says %q", got)
		}
		u.hide(spec.ID)
		if got := u.progress("f.fn"); got != "" {
			t.Errorf("after the end it says %q", got)
		}
	}
}

// The progress says which node or pod has how much.
func TestProgressOfSendings(t *testing.T) {
	u := &uris{}
	s := &sending{}
	s.sent.Store(212e6)
	s.of.Store(553e6)
	for id, of := range map[string]string{"f-2": "f.fn", "g-1": "g.fn", "f-1": "f.fn"} {
		node := ""
		if id == "f-2" {
			node = "n"
		}
		u.show(cluster.InstanceSpec{ID: cluster.InstanceID(id), Function: of}, node, s)
	}
	got := u.progress("f.fn")
	if !strings.HasSuffix(got, ": node n, for pod f-2, has 212 of 553 MB; pod f-1 has 212 of 553 MB") {
		t.Error(got)
	}
}
