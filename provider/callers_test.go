package provider

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/access"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/store"
	"github.com/faas-infer/faas-infer/provider/web"
)

const (
	shopKey  = "0123456789abcdef0123456789abcdef"
	otherKey = "fedcba9876543210fedcba9876543210"
)

// guarded is a rig whose secrets are on the disk. The function mnist is not deployed yet.
func guarded(t *testing.T, edit func(o *Options)) *rig {
	t.Helper()
	return newRig(t, func(o *Options) {
		withSecrets(t)(o)
		if edit != nil {
			edit(o)
		}
	})
}

// secret creates or updates a secret, or fails the test.
func (r *rig) secret(t *testing.T, method, namespace, name, value string) {
	t.Helper()
	text, err := json.Marshal(types.Secret{Name: name, Namespace: namespace, Value: value})
	if err != nil {
		t.Fatal(err)
	}
	if w := r.do(method, "/system/secrets", string(text)); w.Code != 202 {
		t.Fatalf("%s of secret %s: %d %s", method, name, w.Code, w.Body)
	}
}

// annotated sets annotations of a deployment.
func annotated(pairs ...string) func(d *types.FunctionDeployment) {
	return func(d *types.FunctionDeployment) {
		for i := 0; i+1 < len(pairs); i += 2 {
			(*d.Annotations)[pairs[i]] = pairs[i+1]
		}
	}
}

// secretsDir is the directory of a rig's secrets.
func secretsDir(t *testing.T, r *rig) string {
	t.Helper()
	r.secret(t, "POST", "openfaas-fn", "where", "x")
	file, err := r.secrets.(*store.Secrets).File("openfaas-fn", "where")
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Dir(filepath.Dir(file))
}

// wantCode fails unless an invocation gets a status.
func (r *rig) wantCode(t *testing.T, status int, target string, header ...string) http.Header {
	t.Helper()
	w := r.do("POST", target, "x", header...)
	if w.Code != status {
		t.Errorf("%s with %v: %d %s, want %d", target, header, w.Code, w.Body, status)
	}
	return w.Header()
}

func TestKeysOfFunctions(t *testing.T) {
	var got http.Header
	r := guarded(t, nil)
	r.controller.dispatcher = dispatcherFunc(func(ctx context.Context, req *frame.Request) (*frame.Response, error) {
		got = req.Header
		return echo(ctx, req)
	})
	r.secret(t, "POST", "openfaas-fn", "keys", "shop "+shopKey)
	r.deploy(t, annotated(annotation.InferAccess, "keys"))
	open := func(d *types.FunctionDeployment) { d.Service = "open" }
	r.deploy(t, open)
	r.wantCode(t, 200, "/function/open", "Authorization", "Bearer "+shopKey)
	if got.Get("Authorization") == "" {
		t.Error("the header of a function without keys is missing")
	}
	for _, path := range []string{"/function/mnist", "/function/mnist.openfaas-fn/x", "/function/%6dnist", "/function/mnist/v2/models/m/infer", "/function/mnist/v1/models/m:predict"} {
		h := r.wantCode(t, 401, path)
		if want := `Bearer realm="mnist.openfaas-fn"`; h.Get("WWW-Authenticate") != want || h.Get("X-OpenFaaS-Internal") != "provider" {
			t.Errorf("%s: %v", path, h)
		}
		if isJSON := strings.HasPrefix(h.Get("Content-Type"), "application/json"); isJSON != strings.Contains(path, "/models/") {
			t.Errorf("%s: a refusal of the type %s", path, h.Get("Content-Type"))
		}
		h = r.wantCode(t, 401, path, "X-API-Key", otherKey)
		if want := `Bearer realm="mnist.openfaas-fn", error="invalid_token"`; h.Get("WWW-Authenticate") != want {
			t.Errorf("%s: %v", path, h)
		}
		got = nil
		r.wantCode(t, 200, path, "X-API-Key", shopKey, "Authorization", "Basic mine")
		if got.Get("X-API-Key") != "" || got.Get("Authorization") != "Basic mine" {
			t.Errorf("%s: the function gets %v", path, got)
		}
		r.wantCode(t, 200, path, "Authorization", "Bearer "+shopKey)
		if got.Get("Authorization") != "" {
			t.Errorf("%s: the function gets %v", path, got)
		}
	}
	// A change of the secret takes effect at once, and the answers tell nothing.
	r.secret(t, "PUT", "openfaas-fn", "keys", otherKey)
	r.wantCode(t, 401, "/function/mnist", "X-API-Key", shopKey)
	r.wantCode(t, 200, "/function/mnist", "X-API-Key", otherKey)
	r.secret(t, "PUT", "openfaas-fn", "keys", "short")
	r.wantCode(t, 503, "/function/mnist", "X-API-Key", "short")
	if w := r.do("GET", "/system/function/mnist", ""); !strings.Contains(w.Body.String(), "line 1: an API key must have") {
		t.Errorf("the description does not say why: %s", w.Body)
	}
	r.secret(t, "PUT", "openfaas-fn", "keys", otherKey)
	r.wantCode(t, 200, "/function/mnist", "X-API-Key", otherKey)
	if w := r.do("DELETE", "/system/secrets", `{"name":"keys"}`); w.Code != 202 {
		t.Fatal(w.Body)
	}
	r.wantCode(t, 503, "/function/mnist", "X-API-Key", otherKey)
	r.wantCode(t, 200, "/function/open")
	r.controller.problem, r.controller.slight = "it is slow", true
	for path, want := range map[string]int{"/system/function/mnist": 0, "/system/function/open": 1} {
		var is types.FunctionStatus
		if err := json.Unmarshal(r.do("GET", path, "").Body.Bytes(), &is); err != nil || int(is.AvailableReplicas) != want {
			t.Errorf("%s: %d instances are available, want %d, %v", path, is.AvailableReplicas, want, err)
		}
		if problem := (*is.Annotations)[annotation.InferProblem]; strings.Contains(problem, "nobody can call it") != (want == 0) {
			t.Errorf("%s: the problem is %q", path, problem)
		}
	}
	// A new deployment finds a secret that has just come back past this server.
	file := filepath.Join(secretsDir(t, r), "openfaas-fn", "keys")
	if err := os.WriteFile(file, []byte(shopKey), 0o600); err != nil {
		t.Fatal(err)
	}
	r.deploy(t, annotated(annotation.InferAccess, "keys"))
	r.wantCode(t, 200, "/function/mnist", "X-API-Key", shopKey)
	// Without the annotation anybody may call again.
	r.deploy(t, nil)
	r.wantCode(t, 200, "/function/mnist")
	if text := r.do("GET", "/metrics", "").Body.String(); !strings.Contains(text, `faas_infer_access_requests_total{function="mnist.openfaas-fn",key="shop"} 10`) ||
		!strings.Contains(text, `faas_infer_access_refusals_total{function="mnist.openfaas-fn",reason="unknown"} 6`) || strings.Contains(text, "0123456789") {
		t.Errorf("metrics: %s", text)
	}
}

func TestWrongAccessIsRefused(t *testing.T) {
	r := guarded(t, nil)
	file, err := r.secrets.(*store.Secrets).File("openfaas-fn", "keys")
	if err == nil {
		t.Fatal(file)
	}
	r.secret(t, "POST", "openfaas-fn", "keys", "# nobody\n")
	for value, want := range map[string]string{
		"absent": `com.openfaas.infer.access is "absent": its keys cannot be read: there is no secret "absent" in namespace "openfaas-fn": create it with faas-cli secret create`,
		"keys":   `com.openfaas.infer.access is "keys": its keys cannot be read: it has no API key`,
		"../x":   `com.openfaas.infer.access is "../x": it must name a secret`, "": "com.openfaas.infer.access is not set: it must name a secret",
	} {
		wantSentence(t, r.do("POST", "/system/functions", deployment(annotated(annotation.InferAccess, value))), 400, want)
	}
	for _, value := range []string{"", "fast", "0/s", "1/d"} {
		wantSentence(t, r.do("POST", "/system/functions", deployment(annotated(annotation.InferRate, value))), 400, "com.openfaas.infer.rate is ", `for example "100/s"`)
	}
	// Both fit programs.
	r.secret(t, "PUT", "openfaas-fn", "keys", shopKey)
	r.deploy(t, func(d *types.FunctionDeployment) {
		d.Annotations = &map[string]string{annotation.InferAccess: "keys", annotation.InferRate: "1/m"}
	})
	r.wantCode(t, 401, "/function/mnist")
	// The previous revision goes on after a refusal.
	wantSentence(t, r.do("PUT", "/system/functions", deployment(annotated(annotation.InferAccess, "absent"))), 400, "absent")
	r.wantCode(t, 200, "/function/mnist", "X-API-Key", shopKey)
}

// A namespace names the keys of its functions that name none.
func TestKeysOfNamespaces(t *testing.T) {
	r := guarded(t, func(o *Options) {
		o.AccessKeys = filepath.Join(t.TempDir(), "keys")
		if err := os.WriteFile(o.AccessKeys, []byte(otherKey), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	in := func(d *types.FunctionDeployment) { d.Namespace = "team-a" }
	r.deploy(t, in)
	r.deploy(t, nil)
	r.secret(t, "POST", "team-a", "keys", shopKey)
	r.wantCode(t, 401, "/function/mnist.team-a", "X-API-Key", shopKey)
	r.wantCode(t, 200, "/function/mnist.team-a", "X-API-Key", otherKey)
	update := func(text string) int { return r.do("PUT", "/system/namespace/team-a", text).Code }
	r.secret(t, "POST", "team-a", "nobody", "# nobody")
	for _, name := range []string{"", "../x", "absent", "nobody"} {
		for _, kind := range []string{"annotations", "labels"} {
			text := fmt.Sprintf(`{"name":"team-a",%q:{"com.openfaas.infer.access":%q}}`, kind, name)
			wantSentence(t, r.do("PUT", "/system/namespace/team-a", text), 400, "com.openfaas.infer.access is ")
			wantSentence(t, r.do("POST", "/system/namespace/", strings.Replace(text, "team-a", "new", 1)), 400, "com.openfaas.infer.access is ")
		}
	}
	r.wantCode(t, 200, "/function/mnist.team-a", "X-API-Key", otherKey)
	if code := update(`{"name":"team-a","annotations":{"com.openfaas.infer.access":"keys"}}`); code != 202 {
		t.Fatal(code)
	}
	r.wantCode(t, 200, "/function/mnist.team-a", "X-API-Key", shopKey)
	r.wantCode(t, 401, "/function/mnist.team-a", "X-API-Key", otherKey)
	r.wantCode(t, 200, "/function/mnist", "X-API-Key", otherKey)
	// What kubectl writes is not checked, and opens nothing.
	for name, word := range map[string]string{"": `"\"\""`, "absent": `"absent"`} {
		n := store.Namespace{Name: "team-a", Labels: map[string]string{annotation.InferAccess: name}}
		if err := r.store.PutNamespace(n); err != nil {
			t.Fatal(err)
		}
		followOnce(r)
		r.wantCode(t, 503, "/function/mnist.team-a", "X-API-Key", shopKey)
		wantSentence(t, r.do("POST", "/system/functions", deployment(in)), 400, `com.openfaas.infer.access of namespace team-a is `+word)
	}
	// These two miss the objective. Those with a wrong key do not count.
	wantMisses(t, r.do("GET", "/metrics", "").Body.String(), "mnist.team-a", 5, 2)
	r.secret(t, "POST", "team-a", "own", shopKey)
	r.deploy(t, func(d *types.FunctionDeployment) {
		in(d)
		annotated(annotation.InferAccess, "own")(d)
	})
	r.wantCode(t, 200, "/function/mnist.team-a", "X-API-Key", shopKey)
	// Changes past this server are found later. A secret that cannot be read keeps its keys.
	if err := os.WriteFile(r.callers.file, []byte(shopKey), 0o600); err != nil {
		t.Fatal(err)
	}
	r.wantCode(t, 401, "/function/mnist", "X-API-Key", shopKey)
	followOnce(r)
	r.wantCode(t, 200, "/function/mnist", "X-API-Key", shopKey)
	r.callers.secrets = unreadable{r.callers.secrets}
	followOnce(r)
	r.wantCode(t, 200, "/function/mnist.team-a", "X-API-Key", shopKey)
	if err := os.Remove(r.callers.file); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(r.callers.file, r.callers.file); err != nil { // It leads nowhere, as when descriptors run out.
		t.Fatal(err)
	}
	followOnce(r)
	r.wantCode(t, 200, "/function/mnist", "X-API-Key", shopKey)
	if err := os.Remove(r.callers.file); err != nil {
		t.Fatal(err)
	}
	followOnce(r)
	r.wantCode(t, 503, "/function/mnist", "X-API-Key", shopKey)
	if n := len(r.callers.guards); n != 2 {
		t.Errorf("%d sources are kept, functions have 2", n)
	}
}

// slowNamespaces is a store in which one answer about a namespace may take until proceed.
type slowNamespaces struct {
	Store
	slow          atomic.Bool
	read, proceed chan struct{}
}

func (s *slowNamespaces) Namespace(name string) (store.Namespace, error) {
	n, err := s.Store.Namespace(name)
	if s.slow.CompareAndSwap(true, false) {
		close(s.read)
		<-s.proceed
	}
	return n, err
}

// A round of Follow that has read a namespace before it gets keys does not open its functions again.
func TestFollowReopensNothing(t *testing.T) {
	s := &slowNamespaces{read: make(chan struct{}), proceed: make(chan struct{})}
	r := guarded(t, func(o *Options) { s.Store, o.Store = o.Store, s })
	r.deploy(t, func(d *types.FunctionDeployment) { d.Namespace = "team-a" })
	r.secret(t, "POST", "team-a", "keys", shopKey)
	s.slow.Store(true)
	followed, updated := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(followed)
		followOnce(r)
	}()
	<-s.read
	go func() {
		defer close(updated)
		if w := r.do("PUT", "/system/namespace/team-a", `{"name":"team-a","annotations":{"com.openfaas.infer.access":"keys"}}`); w.Code != 202 {
			t.Error(w.Code, w.Body)
		}
	}()
	select {
	case <-updated: // It must wait; if it does not, let it be first.
	case <-time.After(20 * time.Millisecond):
	}
	close(s.proceed)
	<-followed
	<-updated
	r.wantCode(t, 401, "/function/mnist.team-a")
}

// followOnce is one round of Follow.
func followOnce(r *rig) {
	for _, g := range r.callers.used(everyFunction(r.Server)) {
		r.callers.load(g)
	}
}

// unreadable are secrets of an API server that is away.
type unreadable struct{ Secrets }

func (unreadable) Value(string, string) ([]byte, error) { return nil, errors.New("connection refused") }

// After a restart nobody gets in before the keys are read.
func TestKeysAfterARestart(t *testing.T) {
	r := guarded(t, nil)
	r.secret(t, "POST", "openfaas-fn", "keys", shopKey)
	r.deploy(t, annotated(annotation.InferAccess, "keys"))
	for _, c := range []struct {
		secrets Secrets
		code    int
	}{{r.secrets, 200}, {unreadable{r.secrets}, 503}} {
		again := newRig(t, func(o *Options) { o.Store, o.Secrets = r.store, c.secrets })
		if err := again.Restore(t.Context()); err != nil {
			t.Fatal(err)
		}
		again.wantCode(t, c.code, "/function/mnist", "X-API-Key", shopKey)
		if c.code == 503 {
			again.callers.secrets = r.secrets
			followOnce(again)
			again.wantCode(t, 200, "/function/mnist", "X-API-Key", shopKey)
		}
		again.wantCode(t, 401, "/function/mnist")
	}
}

// A function that is still being restored takes asynchronous requests, with the keys of now.
func TestKeysWhileRestoring(t *testing.T) {
	r := guarded(t, nil)
	r.secret(t, "POST", "openfaas-fn", "keys", shopKey)
	r.deploy(t, annotated(annotation.InferAccess, "keys"))
	again := newRig(t, func(o *Options) { o.Store, o.Secrets = r.store, r.secrets })
	var got http.Header
	again.UseAsync(acceptor{&got})
	restore, err := again.BeginRestore()
	if err != nil {
		t.Fatal(err)
	}
	again.wantCode(t, 202, "/async-function/mnist", "X-API-Key", shopKey)
	r.secret(t, "PUT", "openfaas-fn", "keys", otherKey) // Another replica does.
	followOnce(again)
	again.wantCode(t, 401, "/async-function/mnist", "X-API-Key", shopKey)
	again.wantCode(t, 202, "/async-function/mnist", "X-API-Key", otherKey)
	restore(t.Context())
	again.wantCode(t, 200, "/function/mnist", "X-API-Key", otherKey)
}

// The queue keeps the requests to a function that this version refuses until that is mended, so it asks for keys meanwhile,
// and the rate holds.
func TestKeysOfBrokenFunctions(t *testing.T) {
	r := guarded(t, nil)
	r.secret(t, "POST", "openfaas-fn", "keys", shopKey)
	of := func(name string, pairs ...string) *map[string]string {
		keys := map[string]string{annotation.InferWeight: "none"}
		annotated(pairs...)(&types.FunctionDeployment{Annotations: &keys})
		r.elsewhere(t, 1, func(f *store.Function) { f.Deployment.Service, f.Deployment.Annotations = name, &keys })
		return &keys
	}
	of("named", annotation.InferAccess, "keys", annotation.InferRate, "1/h")
	of("empty", annotation.InferAccess, "")
	of("wrong", annotation.InferAccess, "../x")
	of("open")
	keys := of("label")
	r.elsewhere(t, 1, func(f *store.Function) {
		f.Deployment.Service, f.Deployment.Annotations, f.Deployment.Labels = "label", keys, &map[string]string{annotation.InferAccess: "keys"}
	})
	again := newRig(t, func(o *Options) { o.Store, o.Secrets = r.store, r.secrets })
	var got http.Header
	again.UseAsync(acceptor{&got})
	if err := again.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, followed := range []bool{false, true} {
		for name, want := range map[string]int{"named": 401, "label": 401, "empty": 503, "wrong": 503, "open": 202} {
			again.wantCode(t, want, "/async-function/"+name)
		}
		again.wantCode(t, 202, "/async-function/label", "X-API-Key", shopKey)
		if !followed {
			again.wantCode(t, 202, "/async-function/named", "X-API-Key", shopKey)
		}
		again.wantCode(t, 429, "/async-function/named", "X-API-Key", shopKey)
		again.wantCode(t, 503, "/function/label", "X-API-Key", shopKey)
		followOnce(again)
	}
}

func TestTokensOfFunctions(t *testing.T) {
	secret := []byte(strings.Repeat("s", 32))
	sign := func(claims jwt.MapClaims) string {
		text, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(secret)
		if err != nil {
			t.Fatal(err)
		}
		return "Bearer " + text
	}
	r := guarded(t, nil)
	r.secret(t, "POST", "openfaas-fn", "jwks", `{"keys":[{"kty":"oct","k":"`+base64.RawURLEncoding.EncodeToString(secret)+`"}]}`)
	r.deploy(t, annotated(annotation.InferAccess, "jwks"))
	soon := now.Add(time.Minute).Unix()
	r.wantCode(t, 200, "/function/mnist", "Authorization", sign(jwt.MapClaims{"aud": "mnist", "exp": soon}))
	r.wantCode(t, 401, "/function/mnist", "Authorization", sign(jwt.MapClaims{"aud": "mnist", "exp": now.Add(-time.Hour).Unix()}))
	if h := r.wantCode(t, 403, "/function/mnist", "Authorization", sign(jwt.MapClaims{"aud": "other", "exp": soon})); h.Get("WWW-Authenticate") != `Bearer realm="mnist.openfaas-fn", error="insufficient_scope"` {
		t.Errorf("a foreign token: %v", h)
	}
}

// Rates count for all together without keys, and otherwise for each key. They survive a new revision.
func TestRates(t *testing.T) {
	at := now
	r := guarded(t, func(o *Options) { o.Now = func() time.Time { return at } })
	r.secret(t, "POST", "openfaas-fn", "keys", shopKey+"\n"+otherKey)
	r.deploy(t, annotated(annotation.InferRate, "2/m"))
	if h := r.wantCode(t, 200, "/function/mnist"); h.Get("RateLimit-Limit") != "2" || h.Get("RateLimit-Remaining") != "1" || h.Get("RateLimit-Reset") != "30" {
		t.Errorf("headers %v", h)
	}
	r.wantCode(t, 200, "/function/mnist", "X-API-Key", shopKey)
	r.deploy(t, annotated(annotation.InferRate, "2/m", "topic", "x"))
	if h := r.wantCode(t, 429, "/function/mnist/v2/models/m/infer"); h.Get("Retry-After") != "30" || h.Get("RateLimit-Remaining") != "0" || h.Get("RateLimit-Reset") != "60" {
		t.Errorf("headers %v", h)
	}
	at = at.Add(30 * time.Second)
	r.wantCode(t, 200, "/function/mnist")
	r.wantCode(t, 429, "/function/mnist")
	r.deploy(t, annotated(annotation.InferRate, "1/m", annotation.InferAccess, "keys"))
	for _, key := range []string{shopKey, otherKey} {
		r.wantCode(t, 200, "/function/mnist", "X-API-Key", key)
		r.wantCode(t, 429, "/function/mnist", "X-API-Key", key)
	}
	r.wantCode(t, 401, "/function/mnist")
	r.deploy(t, nil)
	if h := r.wantCode(t, 200, "/function/mnist"); h.Get("RateLimit-Limit") != "" {
		t.Errorf("headers %v", h)
	}
}

// A rate holds for the requests that are queued while their function arrives, and afterwards.
func TestRatesWhileArriving(t *testing.T) {
	var got http.Header
	stored := newRig(t, nil)
	record := stored.elsewhere(t, 1, func(f *store.Function) { (*f.Deployment.Annotations)[annotation.InferRate] = "2/h" })
	queue := func(r *rig) {
		for _, want := range []int{202, 202, 429} {
			r.wantCode(t, want, "/async-function/mnist")
		}
	}
	adopts, c := restarted(t, stored, nil, "mnist")
	adopts.UseAsync(acceptor{&got})
	adopted := make(chan error, 1)
	go func() { adopted <- adopts.Adopt(t.Context(), record) }()
	<-c.begun
	queue(adopts)
	close(c.gates[record.Deployment.Service+"."+DefaultNamespace])
	if err := <-adopted; err != nil {
		t.Fatal(err)
	}
	adopts.wantCode(t, 429, "/function/mnist")

	restores := newRig(t, func(o *Options) { o.Store = stored.store })
	restores.UseAsync(acceptor{&got})
	restore, err := restores.BeginRestore()
	if err != nil {
		t.Fatal(err)
	}
	queue(restores)
	restore(t.Context())
	restores.wantCode(t, 429, "/function/mnist")
}

// acceptor is a queue that keeps the headers of what it accepts.
type acceptor struct{ got *http.Header }

func (a acceptor) Accept(w http.ResponseWriter, r *http.Request, _, _ string) error {
	*a.got = r.Header.Clone()
	w.WriteHeader(http.StatusAccepted)
	return nil
}

func (acceptor) System(http.ResponseWriter, *http.Request) error { return nil }

// The queue gets no key, neither over HTTP nor from gateways. A request in the queue needs none.
func TestKeysOfAsynchronousRequests(t *testing.T) {
	var got http.Header
	r := guarded(t, nil)
	r.UseAsync(acceptor{&got})
	r.secret(t, "POST", "openfaas-fn", "keys", shopKey)
	r.deploy(t, annotated(annotation.InferAccess, "keys", annotation.InferRate, "2/h"))
	r.wantCode(t, 401, "/async-function/mnist", "X-API-Key", otherKey)
	if got != nil {
		t.Error("a request without a key is in the queue")
	}
	r.wantCode(t, 202, "/async-function/mnist", "X-API-Key", shopKey)
	if got == nil || got.Get("X-API-Key") != "" {
		t.Errorf("the queue has %v", got)
	}
	queue := Access{r.Server}
	message := http.Header{"X-Api-Key": {shopKey}, "Topic": {"x"}}
	if err := queue.Admit(t.Context(), "mnist.openfaas-fn", message); err != nil || len(message) != 1 {
		t.Errorf("%v, %v", err, message)
	}
	for key, want := range map[string]int{shopKey: 429, otherKey: 401} {
		if err := queue.Admit(t.Context(), "mnist", http.Header{"X-Api-Key": {key}}); web.StatusOf(err) != want {
			t.Errorf("%v, want %d", err, want)
		}
	}
	if err := queue.Admit(t.Context(), "absent.openfaas-fn", nil); err != nil {
		t.Error(err)
	}
	if _, err := r.Invoke(t.Context(), "mnist", &frame.Request{Method: "POST", Path: "/", Header: http.Header{}}); err != nil {
		t.Error(err)
	}
}

// otherReplica owns all functions.
type otherReplica struct{ asked *string }

func (o otherReplica) Take(_ context.Context, function, caller string, _ func() access.Outcome) access.Outcome {
	*o.asked = fmt.Sprint(function, " ", len(caller))
	return access.Outcome{Limit: 7, Retry: time.Second}
}

// With several replicas the function's owner counts.
func TestRatesOfReplicas(t *testing.T) {
	var asked string
	r := guarded(t, func(o *Options) { o.Rates = otherReplica{&asked} })
	r.deploy(t, annotated(annotation.InferRate, "2/h"))
	if h := r.wantCode(t, 429, "/function/mnist"); asked != "mnist.openfaas-fn 0" || h.Get("RateLimit-Limit") != "7" {
		t.Errorf("asked %q, headers %v", asked, h)
	}
}

// Without keys and rates the request path has one more pointer to look at.
func TestOpenFunctionsCostNothing(t *testing.T) {
	r := newRig(t, nil)
	r.deploy(t, nil)
	d, err := r.lookUp("mnist")
	if err != nil || d.policy.Load() != nil {
		t.Fatalf("%v, %v", d.policy.Load(), err)
	}
	header := http.Header{"Authorization": {"Bearer x"}}
	if n := testing.AllocsPerRun(100, func() {
		if r.callers.admit(t.Context(), d, header, nil) != nil {
			t.Error("refused")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
