package command

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/types"
	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/async"
	"github.com/faas-infer/faas-infer/provider/web"
)

// failing is a function that always fails and is tried once, so that its requests
// are given up.
type failing struct{}

func (failing) Invoke(context.Context, string, *frame.Request) (*frame.Response, error) {
	return &frame.Response{Status: 500, Body: []byte("no")}, nil
}

func (failing) Annotations(name string) (map[string]string, bool) {
	return map[string]string{"com.openfaas.retry.attempts": "1"}, name == "echo.openfaas-fn"
}

// asyncServer is a provider's queue behind basic auth.
func asyncServer(t *testing.T) (*async.Queue, string) {
	t.Helper()
	q, err := async.Open(t.Context(), async.Options{Dir: t.TempDir(), Invoker: failing{}, Functions: failing{}, Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		q.Close(ctx)
	})
	if err := q.Start(); err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != "secret" {
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		if err := q.System(w, r); err != nil {
			var known *web.Error
			if !errors.As(err, &known) {
				t.Error(err)
				return
			}
			http.Error(w, err.Error(), known.HTTPStatus())
		}
	}))
	t.Cleanup(s.Close)
	return q, s.URL
}

func TestAsyncCommand(t *testing.T) {
	q, url := asyncServer(t)
	dir := t.TempDir()
	password := filepath.Join(dir, "password")
	if err := os.WriteFile(password, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_STATE_HOME", dir)
	run := func(args ...string) (string, error) { return execute(t, append([]string{"async"}, args...)...) }
	with := func(args ...string) []string {
		return append(args, "--url", url, "--password-file", password)
	}
	if _, err := run("status", "--url", url); err == nil || !strings.Contains(err.Error(), "--password-file") {
		t.Errorf("without a password: %v", err)
	}
	if out, err := run(with("dead")...); err != nil || out != "there are no dead letters\n" {
		t.Errorf("%q %v", out, err)
	}
	for i := range 3 {
		if _, err := q.Enqueue(t.Context(), &types.QueueRequest{Function: "echo", Body: []byte(fmt.Sprint("body", i))}); err != nil {
			t.Fatal(err)
		}
	}
	var out string
	for deadline := time.Now().Add(2 * time.Minute); strings.Count(out, "echo.openfaas-fn") < 3; {
		var err error
		if out, err = run(with("dead")...); err != nil || time.Now().After(deadline) {
			t.Fatalf("%q %v", out, err)
		}
	}
	if !strings.Contains(out, "SEQUENCE") || !strings.Contains(out, "the function answered 500") {
		t.Errorf("dead: %s", out)
	}
	for _, c := range []struct{ args, want, wrong string }{
		{"status", "dead       3", ""},
		{"status --json", `"dead":3`, ""},
		{"show 2", `"reason": "failed"`, ""},
		{"show x", "", "sequence"},
		{"show 99", "", "no dead letter 99"},
		{"replay", "", "--all"},
		{"replay 1 --all", "", "--all"},
		{"replay 99", "99 stays", "were not replayed"},
		{"purge", "", "--all"},
		{"purge 3", "removed 3", ""},
		{"replay 2", "replayed 1", ""},
		{"purge --all", "removed", ""},
	} {
		out, err := run(with(strings.Fields(c.args)...)...)
		if !strings.Contains(out, c.want) || (c.wrong == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("async %s: %q %v, want %q and error %q", c.args, out, err, c.want, c.wrong)
		}
	}
	for _, bad := range []string{"127.0.0.1:8081", "ftp://host"} {
		if _, err := run("status", "--url", bad); err == nil || !strings.Contains(err.Error(), "--url") {
			t.Errorf("--url %s: %v", bad, err)
		}
	}
}
