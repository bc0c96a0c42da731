package kubernetes

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// The test of an installation waits for a server that is not ready yet, and says why one never
// becomes ready.
func TestAnswers(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/never" || asked.Add(1) == 1 {
			http.Error(w, "restoring", http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	run := func(args ...string) (string, error) {
		var out strings.Builder
		c := NewAnswersCommand()
		c.SetArgs(args)
		c.SetOut(&out)
		c.SilenceUsage, c.SilenceErrors = true, true
		err := c.ExecuteContext(t.Context())
		return out.String(), err
	}
	if out, err := run(server.URL + "/readyz"); err != nil || asked.Load() != 2 || !strings.Contains(out, "/readyz answers") {
		t.Errorf("after %d requests: %v: %s", asked.Load(), err, out)
	}
	if _, err := run("--timeout=1s", server.URL+"/never"); err == nil || !strings.Contains(err.Error(), "restoring") && !strings.Contains(err.Error(), "deadline") {
		t.Errorf("of one that is never ready: %v", err)
	}
}
