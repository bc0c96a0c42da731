package disturb

import (
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

func TestPlansThatMakeNoSense(t *testing.T) {
	for want, plan := range map[string]Plan{
		"Watch.Delay is 1.5": {Watch: Watch{Delay: 1.5, Latest: 1}}, "Write.Lose is -1": {Write: Write{Lose: -1}},
		"needs Watch.Latest": {Watch: Watch{Delay: 0.5}}, "needs Watch.Unseen": {Watch: Watch{Drop: 0.5}}, "needs List.Age": {List: List{Stale: 1}},
	} {
		if err := plan.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want an error with %q", plan, err, want)
		}
		if p, err := Start(&rest.Config{Host: "https://127.0.0.1:1"}, plan); err == nil {
			t.Errorf("%+v: a proxy starts", plan)
			p.Close()
		}
	}
	if err := (Plan{}).Check(); err != nil {
		t.Error(err)
	}
}

// The same seed disturbs the same watch in the same way. Another seed disturbs it
// differently.
func TestSeedsDecide(t *testing.T) {
	draw := func(seed, n uint64, key string) (steps []step) {
		p := Plan{Seed: seed, Watch: Watch{Delay: 0.3, Latest: time.Second, Drop: 0.3, Duplicate: 0.3, Cut: 0.3}}
		r := p.source(key, n)
		for range 20 {
			steps = append(steps, p.Watch.event(r))
		}
		return steps
	}
	first := draw(1, 1, "/pods")
	if !slices.Equal(first, draw(1, 1, "/pods")) {
		t.Error("the same seed does something else")
	}
	for name, other := range map[string][]step{"seed": draw(2, 1, "/pods"), "watch": draw(1, 2, "/pods"), "path": draw(1, 1, "/nodes")} {
		if slices.Equal(first, other) {
			t.Errorf("another %s does the same", name)
		}
	}
}

func TestWritesThatAreRefused(t *testing.T) {
	r := newRig(t, Plan{Write: Write{Refuse: 1}})
	if _, err := r.client.CoreV1().ConfigMaps("x").Create(t.Context(), &corev1.ConfigMap{}, metav1.CreateOptions{}); err == nil {
		t.Error("a refused write succeeds")
	}
	if asked := r.upstream.requests(); len(asked) != 0 {
		t.Errorf("the API server was asked %q", asked)
	}
	if _, err := r.client.CoreV1().ConfigMaps("x").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("a read is refused, too: %v", err)
	}
}

func TestWritesWhoseAnswerIsLost(t *testing.T) {
	r := newRig(t, Plan{Write: Write{Lose: 1}})
	if err := r.client.CoreV1().ConfigMaps("x").Delete(t.Context(), "a", metav1.DeleteOptions{}); err == nil {
		t.Error("the answer is not lost")
	}
	if asked := r.upstream.requests(); !slices.Equal(asked, []string{"DELETE /api/v1/namespaces/x/configmaps/a"}) {
		t.Errorf("the API server was asked %q, want the one deletion", asked)
	}
	if c := r.Counts(); c.Lost != 1 {
		t.Errorf("counts %+v, want one lost", c)
	}
}

// Only lists that accept any age are stale.
func TestListsOfThePast(t *testing.T) {
	r := newRig(t, Plan{List: List{Stale: 1, Age: time.Hour}})
	r.eventually("the version is known", func() bool { return r.history.before(time.Now()) == "7" })
	for _, version := range []string{"0", "", "6"} {
		if _, err := r.client.CoreV1().ConfigMaps("x").List(t.Context(), metav1.ListOptions{ResourceVersion: version, Limit: 500}); err != nil {
			t.Fatal(err)
		}
	}
	var lists []string
	for _, line := range r.upstream.requests() {
		if strings.Contains(line, "configmaps") {
			lists = append(lists, line)
		}
	}
	want := []string{
		"GET /api/v1/namespaces/x/configmaps?resourceVersion=7&resourceVersionMatch=Exact",
		"GET /api/v1/namespaces/x/configmaps?limit=500",
		"GET /api/v1/namespaces/x/configmaps?limit=500&resourceVersion=6",
	}
	if !slices.Equal(lists, want) || r.Counts().Stale != 1 {
		t.Errorf("lists %q, want %q", lists, want)
	}
}

func TestHistoryForgets(t *testing.T) {
	h := &history{}
	now := time.Now()
	if got := h.before(now); got != "" {
		t.Errorf("before anything is known: %q", got)
	}
	for i, version := range []string{"1", "2", "3"} {
		h.add(now.Add(time.Duration(i)*time.Minute), version)
	}
	for age, want := range map[time.Duration]string{0: "3", 30 * time.Second: "2", time.Minute: "2", time.Hour: "1"} {
		if got := h.before(now.Add(2*time.Minute - age)); got != want {
			t.Errorf("%v ago: %q, want %q", age, got, want)
		}
	}
	h.add(now.Add(remembered+90*time.Second), "4")
	if got := h.before(now); got != "3" {
		t.Errorf("the oldest that is known is %q, want 3", got)
	}
}

func TestStrangersAreNotServed(t *testing.T) {
	r := newRig(t, Plan{})
	config := r.Config()
	config.BearerToken = "guessed"
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	response, err := client.Get(config.Host + "/api/v1/namespaces/x/configmaps")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if text, _ := io.ReadAll(response.Body); response.StatusCode != http.StatusUnauthorized || !strings.Contains(string(text), "token") {
		t.Errorf("%s %q, want 401", response.Status, text)
	}
}

func TestKubeconfig(t *testing.T) {
	r := newRig(t, Plan{})
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := r.WriteKubeconfig(file); err != nil {
		t.Fatal(err)
	}
	read, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		t.Fatal(err)
	}
	if want := r.Config(); read.Host != want.Host || read.BearerToken != want.BearerToken || string(read.CAData) != string(want.CAData) {
		t.Errorf("the file has %+v", read)
	}
	if err := r.WriteKubeconfig(filepath.Join(t.TempDir(), "x", "\x00")); err == nil {
		t.Error("a file that cannot be written is no error")
	}
}
