package e2e

import (
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// This version reads the state of an earlier one. The copy in testdata is from the commit
// in its name. It has a function with an objective and requests, a secret, a namespace, and
// the queue's files.
func TestStateOfTheVersionBefore(t *testing.T) {
	providerTests.takeHere(t)
	p := newPlace(t)
	out, err := exec.Command("tar", "-xzf", filepath.Join("testdata", "state-e45b42d.tar.gz"), "--strip-components=1", "-C", p.state).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	p.identity(t)
	d := p.provider(t, suite.binary)
	if got := names(d.list(t)); !slices.Equal(got, []string{"identity"}) {
		t.Errorf("functions %v", got)
	}
	for route, want := range map[string]string{"/system/namespaces": `"dev"`, "/system/secrets?namespace=openfaas-fn": `"key"`} {
		if a := do(t, client(t), http.MethodGet, d.url+route, nil); a.status != http.StatusOK || !strings.Contains(a.body, want) {
			t.Errorf("%s: %d %s, want %s", route, a.status, a.body, want)
		}
	}
	if a := do(t, client(t), http.MethodPost, d.function("identity"), []byte(`{"instances":[[1,2,3,4]]}`)); a.status != http.StatusOK || !strings.Contains(a.body, `[1,2,3,4]`) {
		t.Errorf("%d %s", a.status, a.body)
	}
	d.stop(t)
}
