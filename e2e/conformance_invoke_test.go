package e2e

import (
	"bytes"
	"crypto/sha512"
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/types"
)

// variables returns the environment that a process printed.
func variables(text string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "="); ok {
			all[name] = value
		}
	}
	return all
}

// The process sees method, path, query and headers of a request. The client gets the call's
// ID.
func (w *way) passesRequests(t *testing.T) {
	f := ordinary(w.own("request"), "env")
	w.deployed(t, f)
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions} {
		a := w.invoke(t, method, f.Service, "", nil)
		if got := variables(a.body)["Http_Method"]; a.status != http.StatusOK || got != method {
			t.Errorf("%s: %d, Http_Method is %q", method, a.status, got)
		}
		if a.header.Get("X-Call-Id") == "" {
			t.Errorf("%s: no X-Call-Id", method)
		}
		// Nanoseconds since 1970.
		if at, err := strconv.ParseInt(a.header.Get("X-Start-Time"), 10, 64); err != nil || time.Since(time.Unix(0, at)).Abs() > time.Minute {
			t.Errorf("%s: X-Start-Time is %q", method, a.header.Get("X-Start-Time"))
		}
	}
	if a := w.invoke(t, http.MethodHead, f.Service, "", nil); a.status != http.StatusOK || a.body != "" {
		t.Errorf("HEAD: %d %q", a.status, a.body)
	}
	a := w.invoke(t, http.MethodPost, f.Service+"."+defaultNamespace, "/a/b%20c?testing=1&other=x%26y", []byte("{}"),
		"X-Custom-Header", "of the client", "Content-Type", "application/json", "X-Call-Id", "given-by-the-client")
	got := variables(a.body)
	for name, want := range map[string]string{"Http_Query": "testing=1&other=x%26y", "Http_X_Custom_Header": "of the client",
		"Http_Content_Type": "application/json", "Http_X_Call_Id": a.header.Get("X-Call-Id")} {
		if got[name] != want {
			t.Errorf("%s is %q, %q was sent", name, got[name], want)
		}
	}
	if path := got["Http_Path"]; path != "/a/b c" && path != "/a/b%20c" {
		t.Errorf("Http_Path is %q", path)
	}
	if id := a.header.Get("X-Call-Id"); id != "given-by-the-client" {
		t.Errorf("a call's own id became %q", id)
	}
	if _, ok := variables(w.answers(t, f.Service, nil))["Http_Query"]; ok {
		t.Error("a request without a query has one")
	}
	// With and without a slash at the end it is the same function.
	for _, rest := range []string{"/", "?testing=2", "/?testing=2"} {
		if a := w.invoke(t, http.MethodGet, f.Service, rest, nil); a.status != http.StatusOK {
			t.Errorf("%s: %d %s", rest, a.status, a.body)
		}
	}
}

// The process sees the deployment's variables and none of the provider's.
func (w *way) givesEnvironment(t *testing.T) {
	f := ordinary(w.own("environment"), "env")
	f.EnvVars = map[string]string{"custom_env": "custom value", "with_equals": "a=b", "PATH": "/usr/local/bin:/usr/bin:/bin"}
	w.deployed(t, f)
	got := variables(w.answers(t, f.Service, nil))
	for name, want := range f.EnvVars {
		if got[name] != want {
			t.Errorf("%s is %q, deployed was %q", name, got[name], want)
		}
	}
	for name, value := range got {
		// By FAAS_INFER_INSTANCE an orphan is known; where secrets cannot be
		// mounted, FAAS_INFER_SECRETS_DIR tells where they are.
		if !strings.HasPrefix(name, "FAAS_INFER_") && (strings.Contains(value, w.state) || strings.Contains(value, w.password)) {
			t.Errorf("the process sees %s=%s", name, value)
		}
	}
}

// Bodies of any length and any bytes arrive and return unchanged.
func (w *way) carriesBodies(t *testing.T) {
	echo, hash := ordinary(w.own("cat"), "cat"), ordinary(w.own("hash"), "sha512sum")
	w.deployed(t, echo)
	w.deployed(t, hash)
	random := make([]byte, 3<<20)
	rand.NewChaCha8([32]byte{1}).Read(random)
	for _, body := range [][]byte{nil, {0}, []byte("a line\n"), random[:70000], random} {
		if got := w.answers(t, echo.Service, body); !bytes.Equal([]byte(got), body) {
			t.Errorf("%d bytes were sent, %d others came back", len(body), len(got))
		}
		sum := sha512.Sum512(body)
		if got, _, _ := strings.Cut(w.answers(t, hash.Service, body), " "); got != hex.EncodeToString(sum[:]) {
			t.Errorf("the sum of %d bytes is %s", len(body), got)
		}
	}
}

// Redirects go to the client.
func (w *way) passesRedirects(t *testing.T) {
	f := types.FunctionDeployment{Service: w.own("redirector"), Namespace: defaultNamespace, Image: "docker.io/theaxer/redirector:latest",
		EnvProcess: "./handler", EnvVars: map[string]string{"destination": "http://example.com/elsewhere"}}
	w.deployed(t, f)
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		a := w.invoke(t, method, f.Service, "", nil)
		if a.status != http.StatusFound || a.header.Get("Location") != "http://example.com/elsewhere" {
			t.Errorf("%s: %d to %q: %s", method, a.status, a.header.Get("Location"), a.body)
		}
	}
}

// Functions that are not deployed are not found.
func (w *way) knowsNoOther(t *testing.T) {
	for _, name := range []string{"absent", "absent." + defaultNamespace, "identity.not-there", "." + defaultNamespace, "a.b.c.d"} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			if a := w.invoke(t, method, name, "", nil); a.status != http.StatusNotFound {
				t.Errorf("%s %q: %d %s", method, name, a.status, a.body)
			}
		}
		if a := w.system(t, http.MethodGet, "/system/function/"+name, nil); a.status != http.StatusNotFound && a.status != http.StatusBadRequest {
			t.Errorf("status of %q: %d %s", name, a.status, a.body)
		}
	}
}

// If a process fails or is missing, the answer says that the function failed. The next
// request is not affected. Where the program would run on this machine, the deployment is refused.
func (w *way) tellsFailures(t *testing.T) {
	failing := ordinary(w.own("failing"), "false")
	w.deployed(t, failing)
	for range 3 {
		if a := w.invoke(t, http.MethodPost, failing.Service, "", []byte("x")); a.status != http.StatusInternalServerError {
			t.Errorf("a process that fails: %d %s", a.status, a.body)
		}
	}
	missing := ordinary(w.own("missing"), "/no/such/program")
	if onCluster == nil {
		if status, err := w.faas.Deploy(t.Context(), missing); status != http.StatusBadRequest || err == nil || !strings.Contains(err.Error(), missing.EnvProcess) {
			t.Errorf("a program that is not there: %d, %v", status, err)
		}
	} else {
		w.deployed(t, missing)
		a := w.invoke(t, http.MethodPost, missing.Service, "", nil)
		if !slices.Contains([]int{http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable}, a.status) {
			t.Errorf("a program that is not there: %d %s", a.status, a.body)
		}
	}
	slow := ordinary(w.own("slow"), "sleep 300")
	slow.EnvVars = map[string]string{"exec_timeout": "500ms"}
	w.deployed(t, slow)
	began := time.Now()
	a := w.invoke(t, http.MethodPost, slow.Service, "", nil)
	if took := time.Since(began); took > 50*time.Second || a.status < http.StatusInternalServerError {
		t.Errorf("a process that takes longer than exec_timeout: %d after %v", a.status, took)
	}
}

// A function with the suite's smallest limits answers, and its process has these limits.
func (w *way) answersWithinLimits(t *testing.T) {
	f := ordinary(w.own("small"), "cat")
	f.Limits = &types.FunctionResources{Memory: "5Mi", CPU: "100m"}
	if onCluster != nil {
		f.Limits.Memory = "32Mi" // There the limit is the watchdog's, too.
	}
	w.deployed(t, f)
	body := bytes.Repeat([]byte("0123456789abcdef"), 4096)
	for range 5 {
		if got := w.answers(t, f.Service, body); got != string(body) {
			t.Errorf("%d bytes were sent, %d came back", len(body), len(got))
		}
	}
}

// A process that exceeds its memory limit is killed. The function keeps serving.
func (w *way) obeysMemoryLimit(t *testing.T) {
	if w.lacks("cgroup") {
		t.Log("memory cannot be limited here, for lack of rights to make control groups")
		return
	}
	// To compare a line sort keeps all of it, and this one has no end.
	f := ordinary(w.own("hungry"), "sort /dev/zero")
	f.Limits = &types.FunctionResources{Memory: "20Mi"}
	w.deployed(t, f)
	a := w.invoke(t, http.MethodPost, f.Service, "", nil)
	if a.status < http.StatusInternalServerError {
		t.Errorf("a process that takes all memory: %d", a.status)
	}
	f.EnvProcess = "cat"
	if status, err := w.faas.Update(t.Context(), f); err != nil {
		t.Fatalf("%d, %v", status, err)
	}
	w.await(t, patience, "the function to answer again", func() bool {
		a := w.invoke(t, http.MethodPost, f.Service, "", []byte("again"))
		return a.status == http.StatusOK && a.body == "again"
	})
}
