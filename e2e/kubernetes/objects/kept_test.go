package objects

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/client"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/correction"
	"github.com/faas-infer/faas-infer/provider/objects"
	"github.com/faas-infer/faas-infer/provider/store"
)

func TestNamespaces(t *testing.T) {
	a, b := start(t, true), start(t, false)
	a.must(t, 201, "POST", "/system/namespace/", `{"name":"team-a","labels":{"l":"1"},"annotations":{"a":"2"}}`)
	a.must(t, 409, "POST", "/system/namespace/", `{"name":"team-a"}`)
	want := types.FunctionNamespace{Name: "team-a", Labels: map[string]string{"l": "1"}, Annotations: map[string]string{"a": "2"}}
	for _, r := range []*replica{a, b} { // At the second one at once, too.
		var got types.FunctionNamespace
		if err := json.Unmarshal([]byte(r.must(t, 200, "GET", "/system/namespace/team-a", "")), &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, %v", got, err)
		}
	}
	a.must(t, 202, "PUT", "/system/namespace/team-a", `{"name":"team-a","labels":{"m":"1"}}`)
	if got := a.must(t, 200, "GET", "/system/namespace/team-a", ""); strings.Contains(got, `"l"`) || !strings.Contains(got, `"m"`) {
		t.Errorf("updated: %s", got)
	}
	if got := strings.TrimSpace(a.must(t, 200, "GET", "/system/namespaces", "")); got != `["openfaas-fn","team-a"]` {
		t.Errorf("namespaces %s", got)
	}
	a.must(t, 202, "POST", "/system/functions", deployment("x", "x:1", func(d *types.FunctionDeployment) { d.Namespace = "team-a" }))
	b.invoked(t, "x.team-a", "x:1")
	a.must(t, 202, "POST", "/system/secrets", `{"name":"key","namespace":"team-a","value":"v"}`)
	b.must(t, 202, "DELETE", "/system/namespace/team-a", `{"name":"team-a"}`)
	a.absent(t, "x.team-a")
	eventually(t, func() string { return cmpNames(a, `["openfaas-fn"]`) })
	if w := b.do("POST", "/system/namespace/", `{"name":"team-a"}`); w.Code != 409 && w.Code != 201 {
		t.Errorf("made again: %d %s", w.Code, w.Body)
	}
}

func cmpNames(r *replica, want string) string {
	if got := strings.TrimSpace(r.do("GET", "/system/namespaces", "").Body.String()); got != want {
		return "namespaces " + got
	}
	return ""
}

func TestSecrets(t *testing.T) {
	a, b := start(t, true), start(t, false)
	a.must(t, 404, "PUT", "/system/secrets", `{"name":"api-key","value":"v"}`)
	a.must(t, 202, "POST", "/system/secrets", `{"name":"api-key","value":"one"}`)
	b.must(t, 409, "POST", "/system/secrets", `{"name":"api-key","value":"two"}`)
	b.must(t, 202, "PUT", "/system/secrets", `{"name":"api-key","value":"three"}`)
	if got := kubectl(t, "", "get", "secret", "api-key", "-n", "openfaas-fn", "-o", "jsonpath={.data}"); got != `{"api-key":"dGhyZWU="}` {
		t.Errorf("kept as %s", got)
	}
	kubectl(t, "", "create", "secret", "generic", "by-kubectl", "-n", "openfaas-fn", "--from-literal=k=v")
	if got := a.must(t, 200, "GET", "/system/secrets?namespace=openfaas-fn", ""); !strings.Contains(got, "api-key") || strings.Contains(got, "by-kubectl") {
		t.Errorf("listed %s", got)
	}
	if got := a.must(t, 409, "DELETE", "/system/secrets", `{"name":"by-kubectl"}`); !strings.Contains(got, "kubectl") {
		t.Errorf("refused with %s", got)
	}
	a.must(t, 400, "POST", "/system/secrets", `{"name":"No_Name","value":"one"}`)
	a.must(t, 202, "DELETE", "/system/secrets", `{"name":"api-key"}`)
	b.must(t, 404, "DELETE", "/system/secrets", `{"name":"api-key"}`)
}

func TestWhatIsLearnedStays(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	open := func(leading bool) *objects.HistoryStore {
		t.Helper()
		s, err := objects.OpenHistoryStore(ctx, clientOf(t, cluster.Config()), "openfaas", func() bool { return leading })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			cancel()
			s.Close()
		})
		return s
	}
	a, b := open(true), open(false)
	profile := &profiler.Profile{Model: "abc", Measurements: []profiler.Measurement{{Batch: 1, Threads: 1, Median: 560}}}
	state := correction.State{Profile: "p"}
	if _, err := a.Profile("k"); !errors.Is(err, store.ErrAbsent) {
		t.Errorf("absent: %v", err)
	}
	// Who does not lead, measures, but learns for himself only.
	err := errors.Join(b.PutProfile("hash engine machine b≤32", profile), b.PutCorrections(map[string]correction.State{"x.y": state}),
		a.PutCorrections(map[string]correction.State{"f.openfaas-fn": state}), a.PutHistories(map[string][]byte{"f.openfaas-fn": {0, 1, 255}}))
	if err != nil {
		t.Fatal(err)
	}
	c := open(false)
	if got, err := c.Profile("hash engine machine b≤32"); err != nil || !reflect.DeepEqual(got, profile) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := c.Correction("f.openfaas-fn"); err != nil || got.Profile != "p" {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := c.History("f.openfaas-fn"); err != nil || !slices.Equal(got, []byte{0, 1, 255}) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := c.Correction("x.y"); !errors.Is(err, store.ErrAbsent) {
		t.Errorf("a follower's: %v", err)
	}
	if err := errors.Join(c.DeleteCorrection("f.openfaas-fn"), c.DeleteCorrection("f.openfaas-fn"), c.DeleteHistory("f.openfaas-fn")); err != nil {
		t.Error(err)
	}
	eventually(t, func() string {
		if _, err := a.Correction("f.openfaas-fn"); !errors.Is(err, store.ErrAbsent) {
			return "it is still there"
		}
		return ""
	})
	plansAreKept(t, a, b)
	kubectl(t, "", "patch", "configmap", "-n", "openfaas", strings.TrimSpace(kubectl(t, "", "get", "configmap", "-n", "openfaas", "-l", objects.KindLabel+"=profile", "-o", "jsonpath={.items[0].metadata.name}")),
		"--type=merge", "-p", `{"binaryData":{"value":"bm8="}}`)
	eventually(t, func() string {
		if _, err := c.Profile("hash engine machine b≤32"); err == nil || !strings.Contains(err.Error(), "delete it") {
			return "damage is not told"
		}
		return ""
	})
}

// plansAreKept checks that two replicas share plans, and that those that nobody uses go.
func plansAreKept(t *testing.T, a, b *objects.HistoryStore) {
	t.Helper()
	const used, unused = "--instances 2 hash engine machine", "--instances 3 hash engine machine"
	if err := errors.Join(b.PutPlans(used, []byte("[1]")), b.PutPlans(unused, []byte("[2]"))); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string {
		if got, err := a.Plans(unused); err != nil || string(got) != "[2]" {
			return fmt.Sprintf("the other has %s, %v", got, err)
		}
		return ""
	})
	if err := a.KeepPlans(nil, time.Now().Add(-time.Hour)); err != nil {
		t.Error(err)
	}
	if err := a.KeepPlans([]string{used}, time.Now().Add(time.Hour)); err != nil {
		t.Error(err)
	}
	eventually(t, func() string {
		if _, err := b.Plans(unused); !errors.Is(err, store.ErrAbsent) {
			return fmt.Sprintf("nobody uses it, and there is %v", err)
		}
		return ""
	})
	if got, err := b.Plans(used); err != nil || string(got) != "[1]" {
		t.Errorf("the used one: %s, %v", got, err)
	}
}

// An error names the missing right and where to add it.
func TestMissingRights(t *testing.T) {
	kubectl(t, "", "create", "clusterrole", "narrow", "--verb=get,list,watch", "--resource=functions.faas-infer.dev,namespaces,nodes,pods")
	kubectl(t, "", "create", "clusterrolebinding", "narrow", "--clusterrole=narrow", "--user=narrow")
	kubectl(t, "", "create", "role", "narrow", "-n", "openfaas-fn", "--verb=create,delete", "--resource=pods,pods/resize")
	kubectl(t, "", "create", "rolebinding", "narrow", "-n", "openfaas-fn", "--role=narrow", "--user=narrow")
	config := cluster.Config()
	if missing, err := client.CheckAccess(t.Context(), clientOf(t, config), client.Needs(), "openfaas", []string{"openfaas-fn"}); err != nil || len(missing) != 0 {
		t.Errorf("the administrator lacks %v, %v", missing, err)
	}
	config.Impersonate.UserName = "narrow"
	var text string
	eventually(t, func() string {
		missing, err := client.CheckAccess(t.Context(), clientOf(t, config), client.Needs(), "openfaas", []string{"openfaas-fn"})
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, m := range missing {
			all = append(all, m.String())
		}
		text = strings.Join(all, "\n")
		// What was given last may not count yet.
		for _, has := range []string{"may not create pods in", "may not list functions", "may not watch nodes"} {
			if strings.Contains(text, has) {
				return "it is said wrongly: " + has
			}
		}
		return ""
	})
	for _, want := range []string{`may not patch pods/resize in namespace openfaas-fn`, `add verb "create" on resource "secrets" of API group "" to a Role there`,
		`may not create leases in namespace openfaas,`, `may not list deployments in the whole cluster`} {
		if !strings.Contains(text, want) {
			t.Errorf("it is not said: %s", want)
		}
	}
	// What is asked for exists: a misspelt resource would be asked for in vain.
	for _, n := range client.Needs() {
		resource, _, _ := strings.Cut(n.Resource, "/")
		if out := kubectl(t, "", "api-resources", "--api-group="+n.Group, "-o", "name"); !strings.Contains(out, resource) {
			t.Errorf("no resource %s in group %q", resource, n.Group)
		}
	}
}
