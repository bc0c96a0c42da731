package e2e

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/openfaas/faas-provider/types"
)

// secret makes a secret until the test ends.
func (w *way) secret(t *testing.T, name, namespace, value string) {
	t.Helper()
	if status, err := w.faas.CreateSecret(t.Context(), types.Secret{Name: name, Namespace: namespace, Value: value}); err != nil {
		t.Fatalf("secret %s: %d, %v", name, status, err)
	}
	t.Cleanup(func() {
		// It goes with its namespace.
		err := w.faas.DeleteSecret(context.Background(), name, namespace)
		if err != nil && !strings.Contains(err.Error(), "not found") && !strings.Contains(err.Error(), "there is no namespace") {
			t.Errorf("remove secret %s: %v", name, err)
		}
	})
}

// hasSecret reports whether a secret is listed, and fails the test if the list has a value.
func (w *way) hasSecret(t *testing.T, name, namespace string) bool {
	t.Helper()
	list, err := w.faas.GetSecrets(t.Context(), namespace)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		if s.Value != "" || s.RawValue != nil || s.Namespace != namespace {
			t.Errorf("the list of %s shows %+v", namespace, s)
		}
	}
	return slices.ContainsFunc(list, func(s types.Secret) bool { return s.Name == name })
}

// A secret is created, listed without its value, read by a function, changed and removed.
// The next deployment sees the changed value. Names in one namespace do not affect another.
func (w *way) keepsSecrets(t *testing.T) {
	other := w.own("secrets")
	w.namespace(t, other)
	for _, c := range []struct {
		name, namespace string
		first, second   types.Secret
	}{
		{"text", defaultNamespace, types.Secret{Value: "first value"}, types.Secret{Value: "the second, longer value\n"}},
		{"bytes", defaultNamespace, types.Secret{RawValue: []byte{0, 1, 0xff, '\n'}}, types.Secret{RawValue: []byte("text\x00")}},
		{"elsewhere", other, types.Secret{Value: "of the other namespace"}, types.Secret{Value: "still of the other"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			name := w.own("secret-" + c.name)
			if w.hasSecret(t, name, c.namespace) {
				t.Fatal("it is listed before it was made")
			}
			c.first.Name, c.first.Namespace, c.second.Name, c.second.Namespace = name, c.namespace, name, c.namespace
			if status, err := w.faas.UpdateSecret(t.Context(), c.second); err == nil || status != http.StatusNotFound {
				t.Errorf("update before it was made: %d, %v", status, err)
			}
			if status, err := w.faas.CreateSecret(t.Context(), c.first); err != nil {
				t.Fatalf("%d, %v", status, err)
			}
			if status, err := w.faas.CreateSecret(t.Context(), c.first); err == nil || status != http.StatusConflict {
				t.Errorf("made again: %d, %v", status, err)
			}
			if !w.hasSecret(t, name, c.namespace) {
				t.Error("it is not listed")
			}
			w.readsSecret(t, c.first, c.second)
			if err := w.faas.DeleteSecret(t.Context(), name, c.namespace); err != nil {
				t.Fatal(err)
			}
			if w.hasSecret(t, name, c.namespace) {
				t.Error("it is listed after it was removed")
			}
			if err := w.faas.DeleteSecret(t.Context(), name, c.namespace); err == nil || !strings.Contains(err.Error(), "404") && !strings.Contains(err.Error(), "not found") {
				t.Errorf("removed again: %v", err)
			}
		})
	}
}

func value(s types.Secret) string {
	if s.Value != "" {
		return s.Value
	}
	return string(s.RawValue)
}

// readsSecret lets a function print the secret's first value and, after another deployment,
// its second.
func (w *way) readsSecret(t *testing.T, first, second types.Secret) {
	t.Helper()
	if w.lacks("mounts") {
		t.Log("functions cannot have their secrets at /var/openfaas/secrets here, for lack of rights to mount")
		return
	}
	f := ordinary(first.Name, "cat /var/openfaas/secrets/"+first.Name)
	f.Namespace, f.Secrets = first.Namespace, []string{first.Name}
	w.deployed(t, f)
	full := f.Service + "." + f.Namespace
	if got := w.answers(t, full, nil); got != value(first) {
		t.Errorf("the function reads %q", got)
	}
	if status, err := w.faas.UpdateSecret(t.Context(), second); err != nil {
		t.Fatalf("update: %d, %v", status, err)
	}
	f.Annotations = &map[string]string{"secret-hash": "another"}
	if status, err := w.faas.Update(t.Context(), f); err != nil {
		t.Fatalf("update: %d, %v", status, err)
	}
	w.await(t, patience, "the new value", func() bool { return w.answers(t, full, nil) == value(second) })
	w.ownsSecret(t, f, full)
	if err := w.faas.DeleteFunction(t.Context(), f.Service, f.Namespace); err != nil {
		t.Error(err)
	}
}

// ownsSecret lets the function check its secret's file. The file belongs to the user of the
// process. Only this user may read it, and no user may change it.
func (w *way) ownsSecret(t *testing.T, f types.FunctionDeployment, full string) {
	t.Helper()
	file := "/var/openfaas/secrets/" + f.Secrets[0]
	// A kubelet's files belong to root, and are in a mount that nobody may write to.
	owned := func(a answer) bool {
		of, self, _ := strings.Cut(a.body, "\n")
		user, mode, _ := strings.Cut(of, ":")
		return a.status == http.StatusOK && mode == "600" && user != "0" && strings.HasPrefix(self, user+":")
	}
	if onCluster != nil {
		owned = func(a answer) bool {
			_, self, _ := strings.Cut(a.body, "\n")
			return a.status == http.StatusOK && self != "" && !strings.HasPrefix(self, "0:")
		}
	}
	for process, check := range map[string]func(answer) bool{
		// The process's own directory in /proc is its user's.
		"stat -L -c %u:%a " + file + " /proc/self": owned,
		"tee " + file:              func(a answer) bool { return a.status == http.StatusInternalServerError },
		"touch " + file + ".other": func(a answer) bool { return a.status == http.StatusInternalServerError },
	} {
		f.EnvProcess = process
		if status, err := w.faas.Update(t.Context(), f); err != nil {
			t.Fatalf("update: %d, %v", status, err)
		}
		var last answer
		if !within(patience, func() bool {
			last = w.invoke(t, http.MethodPost, full, "", nil)
			return check(last)
		}) {
			t.Errorf("%s: %d %s", process, last.status, last.body)
		}
	}
}

// Invalid secrets are refused, and so are functions with a missing secret.
func (w *way) refusesSecrets(t *testing.T) {
	for name, s := range map[string]types.Secret{
		"no name":           {Namespace: defaultNamespace, Value: "x"},
		"a path":            {Name: "../escape", Namespace: defaultNamespace, Value: "x"},
		"no value":          {Name: "empty", Namespace: defaultNamespace},
		"another namespace": {Name: "lost", Namespace: "not-there", Value: "x"},
		"too large":         {Name: "large", Namespace: defaultNamespace, Value: strings.Repeat("x", 1<<20+1)},
	} {
		status, err := w.faas.CreateSecret(t.Context(), s)
		if err == nil || status != http.StatusBadRequest && status != http.StatusRequestEntityTooLarge {
			t.Errorf("%s: %d, %v", name, status, err)
		} else if strings.Contains(err.Error(), "xxxx") {
			t.Errorf("%s: the refusal tells the value", name)
		}
	}
	f := ordinary(w.own("without-its-secret"), "cat")
	f.Secrets = []string{"no-such-secret"}
	status, err := w.faas.Deploy(t.Context(), f)
	if err == nil || status != http.StatusBadRequest {
		t.Fatalf("a function whose secret is not there: %d, %v", status, err)
	}
	wantWords(t, err.Error(), "no-such-secret", defaultNamespace)
}
