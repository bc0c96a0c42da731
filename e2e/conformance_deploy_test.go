package e2e

import (
	"encoding/json"
	"maps"
	"net/http"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/openfaas/faas-provider/types"
	faasstack "github.com/openfaas/go-sdk/stack"
)

// fromStack reads a stack.yml with faas-cli's parser and returns the deployments that
// faas-cli would send.
func fromStack(t *testing.T, file string) []types.FunctionDeployment {
	t.Helper()
	services, err := faasstack.ParseYAMLFile(file, "", "", false)
	if err != nil {
		t.Fatal(err)
	}
	var all []types.FunctionDeployment
	for _, name := range slices.Sorted(maps.Keys(services.Functions)) {
		f := services.Functions[name]
		d := types.FunctionDeployment{Service: name, Namespace: defaultNamespace, Image: f.Image, EnvProcess: f.FProcess, EnvVars: f.Environment,
			Secrets: f.Secrets, Labels: f.Labels, Annotations: f.Annotations, ReadOnlyRootFilesystem: f.ReadOnlyRootFilesystem}
		if f.Constraints != nil {
			d.Constraints = *f.Constraints
		}
		if f.Limits != nil {
			d.Limits = &types.FunctionResources{Memory: f.Limits.Memory, CPU: f.Limits.CPU}
		}
		if f.Requests != nil {
			d.Requests = &types.FunctionResources{Memory: f.Requests.Memory, CPU: f.Requests.CPU}
		}
		all = append(all, d)
	}
	return all
}

// withLabel returns a deployment as its status shows it: with one more label.
func withLabel(f types.FunctionDeployment) types.FunctionDeployment {
	labels := map[string]string{"faas_function": f.Service}
	if f.Labels != nil {
		maps.Copy(labels, *f.Labels)
	}
	f.Labels = &labels
	return f
}

// Every field of a deployment appears unchanged in the function's status and in the list.
// Fields that were not sent do not appear.
func (w *way) echoes(t *testing.T) {
	w.secret(t, "conformance-secret", defaultNamespace, "quiet")
	for _, f := range fromStack(t, filepath.Join("testdata", "conformance.yml")) {
		t.Run(f.Service, func(t *testing.T) {
			w.deployed(t, f)
			if got := deployment(w.shown(t, f.Service, defaultNamespace)); !reflect.DeepEqual(got, withLabel(f)) {
				t.Errorf("the status shows\n%s, deployed was\n%s", inJSON(t, got), inJSON(t, withLabel(f)))
			}
			list, err := w.faas.GetFunctions(t.Context(), defaultNamespace)
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(list, func(s types.FunctionStatus) bool { return s.Name == f.Service })
			if i < 0 || !reflect.DeepEqual(deployment(list[i]), withLabel(f)) {
				t.Errorf("the list shows\n%s", inJSON(t, list))
			}
			w.hasOnlyWhatWasSent(t, f)
		})
	}
	// faas-cli sends objects without members where stack.yml has none.
	f := ordinary(w.own("empty-objects"), "cat")
	f.Labels, f.Annotations = &map[string]string{}, &map[string]string{}
	w.deployed(t, f)
	if got := deployment(w.shown(t, f.Service, "")); !reflect.DeepEqual(got, withLabel(f)) {
		t.Errorf("the status shows\n%s, deployed was\n%s", inJSON(t, got), inJSON(t, withLabel(f)))
	}
}

// hasOnlyWhatWasSent checks the status's JSON: it must have the members of the deployment
// that were sent, and no others.
func (w *way) hasOnlyWhatWasSent(t *testing.T, f types.FunctionDeployment) {
	t.Helper()
	a := w.system(t, http.MethodGet, "/system/function/"+f.Service+"?namespace="+defaultNamespace, nil)
	var got, sent map[string]any
	if err := json.Unmarshal([]byte(a.body), &got); err != nil {
		t.Fatalf("%v: %s", err, a.body)
	}
	if err := json.Unmarshal([]byte(inJSON(t, withLabel(f))), &sent); err != nil {
		t.Fatal(err)
	}
	for _, ofStatus := range []string{"name", "replicas", "availableReplicas", "invocationCount", "createdAt", "usage"} {
		delete(got, ofStatus)
	}
	delete(sent, "service")
	if a, b := slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(sent)); !slices.Equal(a, b) {
		t.Errorf("the status has %v, deployed was %v", a, b)
	}
}

func inJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A list has all functions of its namespace and no others. Each is in it as soon as it is
// deployed.
func (w *way) lists(t *testing.T) {
	spaces := []string{w.own("list-a"), w.own("list-b")}
	for _, space := range spaces {
		w.namespace(t, space)
		if list, err := w.faas.GetFunctions(t.Context(), space); err != nil || list == nil || len(list) != 0 {
			t.Errorf("the list of %s, which is empty: %v, %v", space, list, err)
		}
		// The gateway's web interface needs a list, and no null.
		if a := w.system(t, http.MethodGet, "/system/functions?namespace="+space, nil); strings.TrimSpace(a.body) != "[]" {
			t.Errorf("the list of %s, which is empty: %s", space, a.body)
		}
	}
	names := map[string][]string{spaces[0]: {"both", "first"}, spaces[1]: {"both", "second"}}
	for space, all := range names {
		for _, name := range all {
			f := ordinary(name, "echo "+space)
			f.Namespace = space
			w.deployed(t, f)
		}
		var got []string
		list, err := w.faas.GetFunctions(t.Context(), space)
		for _, f := range list {
			got = append(got, f.Name)
			if f.Namespace != space {
				t.Errorf("the list of %s has %s of %s", space, f.Name, f.Namespace)
			}
		}
		slices.Sort(got)
		if err != nil || !slices.Equal(got, all) {
			t.Errorf("the list of %s: %v, %v", space, got, err)
		}
	}
	for _, space := range spaces {
		if got := w.answers(t, "both."+space, nil); strings.TrimSpace(got) != space {
			t.Errorf("both.%s answered %q", space, got)
		}
	}
}

// An update replaces everything. Updating an unknown function fails; faas-cli relies on
// that. Deploying a function again updates it.
func (w *way) updatesAndRemoves(t *testing.T) {
	f := ordinary(w.own("changing"), "env")
	if status, err := w.faas.Update(t.Context(), f); status != http.StatusNotFound {
		t.Errorf("update of what is not there: %d, %v", status, err)
	}
	f.EnvVars = map[string]string{"only_before": "1"}
	f.Annotations = &map[string]string{"version": "1"}
	w.deployed(t, f)
	wantWords(t, w.answers(t, f.Service, nil), "only_before=1")
	created := w.shown(t, f.Service, "").CreatedAt
	f.EnvVars = map[string]string{"only_after": "2"}
	f.Annotations = nil
	for _, send := range []func() (int, error){
		func() (int, error) { return w.faas.Update(t.Context(), f) },
		func() (int, error) { return w.faas.Deploy(t.Context(), f) },
	} {
		if status, err := send(); err != nil || status != http.StatusAccepted {
			t.Fatalf("update: %d, %v", status, err)
		}
		got := w.shown(t, f.Service, "")
		if !reflect.DeepEqual(deployment(got), withLabel(f)) || !got.CreatedAt.Equal(created) {
			t.Errorf("after the update the status shows %s", inJSON(t, got))
		}
		w.await(t, patience, "the new environment", func() bool {
			text := w.answers(t, f.Service, nil)
			return strings.Contains(text, "only_after=2") && !strings.Contains(text, "only_before")
		})
	}
	if err := w.faas.DeleteFunction(t.Context(), f.Service, defaultNamespace); err != nil {
		t.Fatal(err)
	}
	if a := w.invoke(t, http.MethodPost, f.Service, "", nil); a.status != http.StatusNotFound {
		t.Errorf("a removed function answered %d %s", a.status, a.body)
	}
	if _, err := w.faas.GetFunction(t.Context(), f.Service, defaultNamespace); err == nil {
		t.Error("a removed function is shown")
	}
	if err := w.faas.DeleteFunction(t.Context(), f.Service, defaultNamespace); err == nil || !strings.Contains(err.Error(), "not found") {
		t.Errorf("removed again: %v", err)
	}
	w.await(t, patience, "the removed function's processes to go", func() bool { return len(w.instancesOf(f.Service)) == 0 })
}

// A name that is not a DNS label is refused with a sentence, in every place.
func (w *way) refusesNames(t *testing.T) {
	for _, name := range []string{"", "Upper", "under_score", "-first", "last-", "a.b.c", "spa ce", "../up", "é", strings.Repeat("a", 64)} {
		f := ordinary(name, "cat")
		if status, err := w.faas.Deploy(t.Context(), f); err == nil || status != http.StatusBadRequest || !strings.Contains(err.Error(), "service") {
			t.Errorf("function %q: %d, %v", name, status, err)
		}
		if name == "" {
			continue
		}
		f = ordinary(w.own("named"), "cat")
		f.Namespace = name
		if status, err := w.faas.Deploy(t.Context(), f); err == nil || status != http.StatusBadRequest {
			t.Errorf("namespace %q: %d, %v", name, status, err)
		}
		f.Namespace, f.Secrets = defaultNamespace, []string{name}
		if status, err := w.faas.Deploy(t.Context(), f); err == nil || status != http.StatusBadRequest {
			t.Errorf("secret %q: %d, %v", name, status, err)
		}
	}
	f := ordinary(w.own("nowhere"), "cat")
	f.Namespace = "not-there"
	status, err := w.faas.Deploy(t.Context(), f)
	if err == nil || status != http.StatusBadRequest {
		t.Fatalf("a deployment in a namespace that is not there: %d, %v", status, err)
	}
	wantWords(t, err.Error(), "not-there", "faas-cli namespace create")
}
