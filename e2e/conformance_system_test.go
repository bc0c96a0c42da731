package e2e

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/openfaas/faas-provider/types"
)

// namespace creates a namespace until the test ends. On a cluster, one of the same name may
// still be terminating.
func (w *way) namespace(t *testing.T, name string) {
	t.Helper()
	if onCluster != nil {
		await(t, patience, "namespace "+name+" to have gone", func() bool {
			_, err := onCluster.kubectl("get", "namespace", name)
			return err != nil
		})
	}
	if status, err := w.faas.CreateNamespace(t.Context(), types.FunctionNamespace{Name: name}); err != nil {
		t.Fatalf("namespace %s: %d, %v", name, status, err)
	}
	t.Cleanup(func() {
		if err := w.faas.DeleteNamespace(context.Background(), name); err != nil && !strings.Contains(err.Error(), "not found") {
			t.Errorf("remove namespace %s: %v", name, err)
		}
	})
}

func (w *way) namespaces(t *testing.T) []string {
	t.Helper()
	list, err := w.faas.GetNamespaces(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// A namespace is created, listed, described, changed, and removed with its functions.
func (w *way) keepsNamespaces(t *testing.T) {
	name := w.own("living")
	before := w.namespaces(t)
	if !slices.Contains(before, defaultNamespace) || slices.Contains(before, name) {
		t.Fatalf("before: %v", before)
	}
	w.namespace(t, name)
	if status, err := w.faas.CreateNamespace(t.Context(), types.FunctionNamespace{Name: name}); err == nil || status != http.StatusConflict {
		t.Errorf("made again: %d, %v", status, err)
	}
	now := w.namespaces(t)
	if len(now) != len(before)+1 || !slices.Contains(now, name) {
		t.Errorf("%v, before %v", now, before)
	}
	change := types.FunctionNamespace{Name: name, Labels: map[string]string{"team": "a"}, Annotations: map[string]string{"why": "to be seen"}}
	if status, err := w.faas.UpdateNamespace(t.Context(), change); err != nil {
		t.Fatalf("update: %d, %v", status, err)
	}
	got, err := w.faas.GetNamespace(t.Context(), name)
	// The client marks every namespace as one of functions; a cluster keeps that to
	// itself.
	for _, marks := range []map[string]string{change.Labels, change.Annotations, got.Labels, got.Annotations} {
		delete(marks, "openfaas")
	}
	if err != nil || got.Name != name || !maps.Equal(got.Labels, change.Labels) || !maps.Equal(got.Annotations, change.Annotations) {
		t.Errorf("described as %+v, %v", got, err)
	}
	f := ordinary(w.own("inhabitant"), "cat")
	f.Namespace, f.Secrets = name, []string{"inhabitant"}
	w.secret(t, "inhabitant", name, "of the namespace")
	w.deployed(t, f)
	if got := w.answers(t, f.Service+"."+name, []byte("x")); got != "x" {
		t.Errorf("a function in it answered %q", got)
	}
	if err := w.faas.DeleteNamespace(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	if now := w.namespaces(t); !slices.Equal(now, before) {
		t.Errorf("%v after it was removed, %v before it was made", now, before)
	}
	if a := w.invoke(t, http.MethodPost, f.Service+"."+name, "", nil); a.status != http.StatusNotFound {
		t.Errorf("a function in a removed namespace answered %d", a.status)
	}
	if _, err := w.faas.GetNamespace(t.Context(), name); err == nil {
		t.Error("a removed namespace is described")
	}
	// Made again it is empty.
	w.namespace(t, name)
	if list, err := w.faas.GetFunctions(t.Context(), name); err != nil || len(list) > 0 || w.hasSecret(t, "inhabitant", name) {
		t.Errorf("made again, it has %v, %v", list, err)
	}
	for method, status := range map[string]int{http.MethodDelete: http.StatusBadRequest, http.MethodPost: http.StatusConflict} {
		if a := w.system(t, method, "/system/namespace/"+defaultNamespace, []byte(`{"name":"`+defaultNamespace+`"}`)); a.status != status {
			t.Errorf("%s of the default namespace: %d %s", method, a.status, a.body)
		}
	}
}

// The provider returns its name and version, its health, and its metrics.
func (w *way) tellsOfItself(t *testing.T) {
	info, err := w.faas.GetInfo(t.Context())
	if err != nil || info.Provider.Provider != "faas-infer" || info.Provider.Orchestration == "" || info.Provider.Version.Release == "" ||
		info.Provider.Version.SHA == "" || info.Version.Release == "" || info.Version.SHA == "" || info.Arch == "" {
		t.Errorf("%+v, %v", info, err)
	}
	if a := do(t, w.http, http.MethodGet, w.base+"/healthz", nil); a.status != http.StatusOK {
		t.Errorf("/healthz: %d %s", a.status, a.body)
	}
	a := w.system(t, http.MethodGet, "/system/telemetry", nil)
	if a.status != http.StatusOK || !json.Valid([]byte(a.body)) {
		t.Errorf("telemetry: %d %s", a.status, a.body)
	}
}

// Every system route requires credentials, including those of namespaces. Functions and
// health do not.
func (w *way) asksForCredentials(t *testing.T) {
	f := ordinary(w.own("open"), "cat")
	w.deployed(t, f)
	routes := map[string][]string{
		"/system/functions":                     {http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete},
		"/system/function/" + f.Service:         {http.MethodGet},
		"/system/scale-function/" + f.Service:   {http.MethodPost},
		"/system/info":                          {http.MethodGet},
		"/system/alert":                         {http.MethodPost},
		"/system/telemetry":                     {http.MethodGet},
		"/system/logs?name=" + f.Service:        {http.MethodGet},
		"/system/secrets":                       {http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete},
		"/system/namespaces":                    {http.MethodGet},
		"/system/namespace/":                    {http.MethodPost},
		"/system/namespace/" + w.own("refused"): {http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete},
	}
	for path, methods := range routes {
		for _, method := range methods {
			for name, credentials := range map[string][2]string{"none": {}, "wrong password": {"admin", "x"}, "wrong user": {"root", w.password}} {
				r, err := http.NewRequestWithContext(t.Context(), method, w.base+path, strings.NewReader(`{}`))
				if err != nil {
					t.Fatal(err)
				}
				if credentials[0] != "" {
					r.SetBasicAuth(credentials[0], credentials[1])
				}
				response, err := w.http.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				response.Body.Close()
				if response.StatusCode != http.StatusUnauthorized {
					t.Errorf("%s %s with credentials %s: %d", method, path, name, response.StatusCode)
				}
			}
		}
	}
	w.answers(t, f.Service, nil)
	if a := do(t, w.http, http.MethodGet, w.base+"/healthz", nil); a.status != http.StatusOK {
		t.Errorf("/healthz without credentials: %d", a.status)
	}
}
