package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/openfaas/faas-provider/types"
	sdk "github.com/openfaas/go-sdk"

	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/store"
	"github.com/faas-infer/faas-infer/provider/web"
)

// withSecrets gives a rig's server a real directory of secrets.
func withSecrets(t testing.TB) func(o *Options) {
	t.Helper()
	s, err := store.OpenSecrets(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return func(o *Options) { o.Secrets = s }
}

// client serves a rig to the stock command line's own client.
func client(t testing.TB, r *rig) *sdk.Client {
	t.Helper()
	server := httptest.NewServer(r.Handler())
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	at, _ := url.Parse(server.URL)
	return sdk.NewClient(at, &sdk.BasicAuth{Username: "admin", Password: "secret"}, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}})
}

func (r *rig) namespaceNames(t testing.TB) []string {
	t.Helper()
	var names []string
	if w := r.do("GET", "/system/namespaces", ""); w.Code != 200 || json.Unmarshal(w.Body.Bytes(), &names) != nil {
		t.Fatalf("list: %d %s", w.Code, w.Body)
	}
	return names
}

func TestNamespaces(t *testing.T) {
	r := newRig(t, nil)
	for i, c := range []struct {
		method, target, body string
		status               int
		words                string
	}{
		{"POST", "/system/namespace/", `{"name":"zoo","labels":{"l":"1"},"annotations":{"openfaas":"1"}}`, 201, ""},
		{"POST", "/system/namespace/", `{"name":"zoo"}`, 409, "exists already"},
		{"POST", "/system/namespace/a-b", `{}`, 201, ""},
		{"POST", "/system/namespace/a-c", `{"name":"a-d"}`, 400, "must agree"},
		{"POST", "/system/namespace/", `{"name":"openfaas-fn"}`, 409, "openfaas-fn"},
		{"POST", "/system/namespace/", `{"name":"No_Label"}`, 400, `name is "No_Label"`},
		{"POST", "/system/namespace/", `{"name":"` + strings.Repeat("x", 64) + `"}`, 400, "63"},
		{"POST", "/system/namespace/", `{}`, 400, "name"},
		{"POST", "/system/namespace/", ``, 400, "empty"},
		{"POST", "/system/namespace/", `{`, 400, "JSON"},
		{"POST", "/system/namespace/", `{"name":5}`, 400, "name"},
		{"POST", "/system/namespace/", strings.Repeat(" ", maxSystemBody+1), 413, "1048576"},
		{"POST", "/system/namespace/Team%20A", `{}`, 400, "Team A"},
		{"PUT", "/system/namespace/zoo", `{"name":"zoo","labels":{"l":"2"}}`, 202, ""},
		{"PUT", "/system/namespace/nowhere", `{"name":"nowhere"}`, 404, "nowhere"},
		{"GET", "/system/namespace/zoo", "", 200, `{"name":"zoo","labels":{"l":"2"}}`},
		{"GET", "/system/namespace/openfaas-fn", "", 200, `{"name":"openfaas-fn"}`},
		{"PUT", "/system/namespace/openfaas-fn", `{"annotations":{"a":"b"}}`, 202, ""},
		{"GET", "/system/namespace/openfaas-fn", "", 200, `{"name":"openfaas-fn","annotations":{"a":"b"}}`},
		{"GET", "/system/namespace/nowhere", "", 404, "nowhere"},
		{"GET", "/system/namespace/..", "", 301, ""},
		{"GET", "/system/namespace/-", "", 400, "hyphen"},
		{"GET", "/system/namespace/", "", 400, "name"},
		{"GET", "/system/namespaces", "", 200, `["openfaas-fn","a-b","team-a","zoo"]`},
		{"DELETE", "/system/namespace/openfaas-fn", `{"name":"openfaas-fn"}`, 400, "cannot be deleted"},
		{"DELETE", "/system/namespace/nowhere", ``, 404, "nowhere"},
		{"DELETE", "/system/namespace/zoo", `{"name":"zoo","labels":{"openfaas":"1"}}`, 202, ""},
		{"DELETE", "/system/namespace/a-b", ``, 202, ""},
		{"DELETE", "/system/namespace/a-b", ``, 404, "a-b"},
		{"GET", "/system/namespaces", "", 200, `["openfaas-fn","team-a"]`},
	} {
		w := r.do(c.method, c.target, c.body)
		if w.Code >= 400 {
			wantSentence(t, w, c.status, c.words)
		} else if w.Code != c.status || w.Code == 200 && strings.TrimSpace(w.Body.String()) != c.words {
			t.Errorf("%d: %s %s: %d %s, want %d %s", i, c.method, c.target, w.Code, w.Body, c.status, c.words)
		}
	}
	if r.namespaceLocks.Len() != 0 {
		t.Errorf("%d locks are left", r.namespaceLocks.Len())
	}
}

func TestDefaultNamespaceIsListedOnce(t *testing.T) {
	r := newRig(t, nil)
	for _, name := range []string{"openfaas-fn", "openfaas", "openfaas-fn-2"} {
		if err := r.store.PutNamespace(store.Namespace{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.namespaceNames(t); !slices.Equal(got, []string{"openfaas-fn", "openfaas", "openfaas-fn-2", "team-a"}) {
		t.Errorf("namespaces %q", got)
	}
}

func TestUnknownNamespaces(t *testing.T) {
	r := newRig(t, withSecrets(t))
	in := deployment(func(d *types.FunctionDeployment) { d.Namespace = "new" })
	for _, w := range []*httptest.ResponseRecorder{
		r.do("POST", "/system/functions", in), r.do("PUT", "/system/functions", in),
		r.do("POST", "/system/functions?namespace=new", deployment(nil)),
		r.do("POST", "/system/secrets", `{"name":"x","namespace":"new","value":"v"}`),
		r.do("PUT", "/system/secrets", `{"name":"x","namespace":"new","value":"v"}`),
		r.do("DELETE", "/system/secrets", `{"name":"x","namespace":"new"}`),
	} {
		wantSentence(t, w, 400, "faas-cli namespace create new")
	}
	if len(r.controller.deployed) != 0 {
		t.Error("something was deployed")
	}
	// Whoever lists all namespaces may come to one that has just been deleted.
	for _, target := range []string{"/system/functions?namespace=new", "/system/secrets?namespace=new", "/system/secrets?namespace=../x"} {
		if w := r.do("GET", target, ""); w.Code != 200 || strings.TrimSpace(w.Body.String()) != "[]" {
			t.Errorf("%s: %d %s", target, w.Code, w.Body)
		}
	}
}

func TestDeletingANamespaceTakesWhatIsInIt(t *testing.T) {
	r := newRig(t, withSecrets(t))
	r.deploy(t, nil)
	r.deploy(t, func(d *types.FunctionDeployment) { d.Namespace = "team-a" })
	r.deploy(t, func(d *types.FunctionDeployment) { d.Namespace, d.Service = "team-a", "dssm" })
	for _, namespace := range []string{"team-a", "openfaas-fn"} {
		if w := r.do("POST", "/system/secrets", `{"name":"x","namespace":"`+namespace+`","value":"v"}`); w.Code != 202 {
			t.Fatalf("secret: %d %s", w.Code, w.Body)
		}
	}
	// A disk that is full keeps the namespace, to be deleted again.
	good := r.Server.store
	r.Server.store = undeletable{good}
	wantSentence(t, r.do("DELETE", "/system/namespace/team-a", ""), 500, "team-a was not deleted", "read-only")
	r.Server.store = good
	if w := r.do("DELETE", "/system/namespace/team-a", ""); w.Code != 202 {
		t.Fatalf("delete: %d %s", w.Code, w.Body)
	}
	wantSentence(t, r.do("POST", "/function/mnist.team-a", "x"), 404)
	if w := r.do("POST", "/function/mnist", "x"); w.Code != 200 {
		t.Errorf("the other namespace's function: %d", w.Code)
	}
	if len(r.controller.deployed) != 1 {
		t.Errorf("left: %v", r.controller.deployed)
	}
	if got, err := r.store.Functions("team-a"); err != nil || len(got) != 0 {
		t.Errorf("the store has %v, %v", got, err)
	}
	for namespace, want := range map[string]int{"team-a": 0, "openfaas-fn": 1} {
		if got, err := r.secrets.List(namespace); err != nil || len(got) != want {
			t.Errorf("secrets of %s: %q, %v", namespace, got, err)
		}
	}
}

// bound is a store of a cluster in which the provider has no right to delete namespaces.
type bound struct{ Store }

func (bound) CheckDeleteNamespace(string) error {
	return web.Refuse(http.StatusForbidden, "namespaces is forbidden")
}

// A namespace that cannot be deleted keeps its functions and secrets.
func TestANamespaceThatStaysIsNotEmptied(t *testing.T) {
	r := newRig(t, withSecrets(t))
	r.deploy(t, func(d *types.FunctionDeployment) { d.Namespace = "team-a" })
	if w := r.do("POST", "/system/secrets", `{"name":"x","namespace":"team-a","value":"v"}`); w.Code != 202 {
		t.Fatalf("secret: %d %s", w.Code, w.Body)
	}
	r.Server.store = bound{r.Server.store}
	wantSentence(t, r.do("DELETE", "/system/namespace/team-a", ""), 403, "team-a was not deleted", "keeps", "forbidden")
	if w := r.do("POST", "/function/mnist.team-a", "x"); w.Code != 200 {
		t.Errorf("the function: %d %s", w.Code, w.Body)
	}
	if got, err := r.secrets.List("team-a"); err != nil || len(got) != 1 {
		t.Errorf("secrets: %q, %v", got, err)
	}
}

// undeletable is a store on a disk that has become read-only.
type undeletable struct{ Store }

func (undeletable) DeleteFunction(string, string) error { return fmt.Errorf("read-only file system") }

// A function that is deployed while its namespace is deleted is deleted with it, or
// refused, or in the namespace that was created again. There is never a function without
// a namespace.
func TestNamespaceDeletedWhileDeployed(t *testing.T) {
	r := newRig(t, withSecrets(t))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 6 {
				name := fmt.Sprintf("f%d", (i+n)%3)
				body := deployment(func(d *types.FunctionDeployment) { d.Service, d.Namespace = name, "team-a" })
				if w := r.do("POST", "/system/functions", body); w.Code != 202 && w.Code != 400 {
					t.Errorf("deploy: %d %s", w.Code, w.Body)
				}
				r.do("POST", "/system/secrets", `{"name":"`+name+`","namespace":"team-a","value":"v"}`)
			}
		})
	}
	wg.Go(func() {
		for range 10 {
			if w := r.do("DELETE", "/system/namespace/team-a", ""); w.Code != 202 {
				t.Errorf("delete: %d %s", w.Code, w.Body)
			}
			if got, err := r.store.Functions("team-a"); err != nil || len(got) != 0 || len(r.sorted().byNamespace["team-a"]) != 0 {
				t.Errorf("after deleting: %v, %v", got, err)
			}
			if got, err := r.secrets.List("team-a"); err != nil || len(got) != 0 {
				t.Errorf("secrets after deleting: %v, %v", got, err)
			}
			if w := r.do("POST", "/system/namespace/team-a", "{}"); w.Code != 201 {
				t.Errorf("create: %d %s", w.Code, w.Body)
			}
		}
		r.do("DELETE", "/system/namespace/team-a", "")
	})
	wg.Wait()
	if r.names() != 0 || len(r.controller.deployed) != 0 || r.namespaceLocks.Len()+r.functionLocks.Len() != 0 {
		t.Errorf("left: %v, %v", r.names(), r.controller.deployed)
	}
}

// A store written by a version that did not store namespaces.
func TestRestoreMakesNamespaces(t *testing.T) {
	r := newRig(t, nil)
	r.deploy(t, nil)
	r.deploy(t, func(d *types.FunctionDeployment) { d.Namespace = "team-a" })
	if err := r.store.DeleteNamespace("team-a"); err != nil {
		t.Fatal(err)
	}
	again := newRig(t, func(o *Options) { o.Store = r.store })
	if err := again.Restore(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := again.namespaceNames(t); !slices.Equal(got, []string{"openfaas-fn", "team-a"}) {
		t.Errorf("namespaces %q", got)
	}
	again.deploy(t, func(d *types.FunctionDeployment) { d.Namespace = "team-a" })
}

func TestNamespacesWithOpenFaaSClient(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Credentials = credentials })
	c, ctx := client(t, r), context.Background()
	spec := types.FunctionNamespace{Name: "dev", Labels: map[string]string{"l": "1"}}
	if _, err := c.UpdateNamespace(ctx, spec); err == nil || !strings.Contains(err.Error(), "not found") {
		t.Errorf("update of an absent one: %v", err)
	}
	if code, err := c.CreateNamespace(ctx, spec); code != 201 || err != nil {
		t.Errorf("create: %d, %v", code, err)
	}
	if code, _ := c.CreateNamespace(ctx, spec); code != 409 {
		t.Errorf("create again: %d", code)
	}
	spec.Labels["l"] = "2"
	if _, err := c.UpdateNamespace(ctx, spec); err != nil {
		t.Error(err)
	}
	if n, err := c.GetNamespace(ctx, "dev"); err != nil || n.Labels["l"] != "2" || n.Annotations["openfaas"] != "1" {
		t.Errorf("get: %+v, %v", n, err)
	}
	if names, err := c.GetNamespaces(ctx); err != nil || !slices.Equal(names, []string{"openfaas-fn", "dev", "team-a"}) {
		t.Errorf("list: %q, %v", names, err)
	}
	if err := c.DeleteNamespace(ctx, "dev"); err != nil {
		t.Error(err)
	}
	if err := c.DeleteNamespace(ctx, "dev"); err == nil || !strings.Contains(err.Error(), "not found") {
		t.Errorf("delete again: %v", err)
	}
}

// Only DNS labels become namespaces, whatever the path and the body name.
func FuzzNamespaceNames(f *testing.F) {
	for _, name := range []string{"dev", "..", "a/b", "%2e%2e", "A", "-a", "a-", "", "ü", "a\x00", "a.b", strings.Repeat("a", 64)} {
		f.Add(name, "")
		f.Add("", name)
	}
	r := newRig(f, nil)
	f.Fuzz(func(t *testing.T, inPath, inBody string) {
		body, _ := json.Marshal(types.FunctionNamespace{Name: inBody})
		w := r.do("POST", "/system/namespace/"+url.PathEscape(inPath), string(body))
		switch w.Code {
		case 201:
			name := inPath + inBody
			if inPath != "" {
				name = inPath
			}
			if !annotation.IsName(name) || r.do("DELETE", "/system/namespace/"+name, "").Code != 202 {
				t.Errorf("%q, %q made a namespace", inPath, inBody)
			}
		case 301, 400, 404, 409:
		default:
			t.Errorf("%q, %q: %d %s", inPath, inBody, w.Code, w.Body)
		}
	})
}
