package command

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/command/commandtest"
	"github.com/faas-infer/faas-infer/provider/annotation"
)

// fakeProvider answers like a provider with three functions in two namespaces. Without figures it has no
// /system/stats, as other providers of OpenFaaS. Its user is admin, with the password secret.
type fakeProvider struct {
	figures bool
	// starting is how often digits is still described as starting.
	starting atomic.Int32
	// deployed are the deployments of digits that it has accepted.
	deployed []string
}

func (f *fakeProvider) serve(t *testing.T) (url string) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	t.Setenv("OPENFAAS_CONFIG", "")
	t.Setenv("CI", "")
	routes := http.NewServeMux()
	routes.HandleFunc("/system/namespaces", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `["openfaas-fn","team-a"]`) })
	routes.HandleFunc("PUT /system/functions", func(w http.ResponseWriter, r *http.Request) {
		if text, _ := io.ReadAll(r.Body); bytes.Contains(text, []byte(`"service":"digits"`)) {
			f.deployed = append(f.deployed, string(text))
			w.WriteHeader(http.StatusAccepted)
			return
		}
		http.Error(w, "there is no function", http.StatusNotFound)
	})
	routes.HandleFunc("POST /system/functions", func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "com.openfaas.slo.latency: it must be a duration", http.StatusBadRequest)
	})
	routes.HandleFunc("GET /system/functions", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("namespace") == "team-a" {
			io.WriteString(w, `[{"name":"words","image":"words:v1","namespace":"team-a","replicas":1,"availableReplicas":1}]`)
			return
		}
		if r.URL.Query().Get("namespace") == "nosuch" {
			io.WriteString(w, "[]")
			return
		}
		fmt.Fprintf(w, "[%s,%s]", f.digits(), broken)
	})
	routes.HandleFunc("/system/function/{name}", func(w http.ResponseWriter, r *http.Request) {
		switch r.PathValue("name") + "." + r.URL.Query().Get("namespace") {
		case "digits.openfaas-fn":
			f.starting.Add(-1)
			io.WriteString(w, f.digits())
		case "broken.openfaas-fn":
			io.WriteString(w, broken)
		case "slow.openfaas-fn":
			io.WriteString(w, slow)
		default:
			http.Error(w, "there is no function", http.StatusNotFound)
		}
	})
	routes.HandleFunc("/system/logs", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("name") != "digits" {
			http.Error(w, "there is no function", http.StatusNotFound)
			return
		}
		io.WriteString(w, `{"name":"digits","instance":"digits-1","timestamp":"2026-01-02T03:04:05Z","text":"loaded"}`+"\n")
	})
	if f.figures {
		routes.HandleFunc("/system/stats", func(w http.ResponseWriter, r *http.Request) {
			if space := r.URL.Query().Get("namespace"); space != "*" && space != "openfaas-fn" {
				t.Errorf("figures of %q", space)
			}
			io.WriteString(w, figures)
		})
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "admin" || password != "secret" {
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		routes.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	t.Setenv("OPENFAAS_URL", s.URL)
	return s.URL
}

func (f *fakeProvider) digits() string {
	state := `"replicas":2,"availableReplicas":2`
	if f.starting.Load() > 0 {
		state = `"replicas":2,"availableReplicas":1`
	}
	return `{"name":"digits","image":"digits:v1","namespace":"openfaas-fn","annotations":{"com.openfaas.slo.latency":"50ms"},` + state + `}`
}

const (
	broken  = `{"name":"broken","image":"x:v1","namespace":"openfaas-fn","annotations":{"com.openfaas.slo.latency":"2s","com.openfaas.infer.problem":"the model cannot be read: it ends too early\u001b[2J"}}`
	slow    = `{"name":"slow","image":"x:v1","namespace":"openfaas-fn","annotations":{"com.openfaas.infer.problem":"no config meets the objective now"},"replicas":1,"availableReplicas":1}`
	figures = `{"now":1,"functions":[
 {"name":"slow","namespace":"openfaas-fn","state":"misses","revision":{"asked":"3","serving":"3"},"replicas":1,"available_replicas":1},
 {"name":"digits","namespace":"openfaas-fn","slo_ms":50,"state":"misses","sentence":"24 % refused: load 480/s, instances carry 390/s, no node has room","revision":{"asked":"18","serving":"17"},
  "minute":{"rate_per_s":1650.4,"attainment_pct":76.04,"p99_ms":61.25},"carries_per_s":1234.5,"replicas":2,"available_replicas":1,"instances":[{"batch":8,"cpu_millicores":1000,"gpu_pct":0,"count":2}]},
 {"name":"words","namespace":"team-a","slo_ms":0,"state":"idle","sentence":"","revision":{"asked":"3","serving":""},"minute":{"rate_per_s":0,"attainment_pct":null,"p99_ms":null},"instances":[]}]}`
)

// called runs a command as the user admin.
func called(t *testing.T, call string) (string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return execute(t, append(strings.Fields(call), "--password-file", file)...)
}

func TestStatus(t *testing.T) {
	(&fakeProvider{figures: true}).serve(t)
	for _, c := range []struct{ call, want string }{
		{"status", "digits        misses       50ms   76.0 %  1650/s    1/2  24 % refused: load 480/s, instances carry 390/s, no node has room"},
		{"status", "words.team-a  idle            -        -     0/s    0/0\n"},
		{"status -o wide", "2 × ⟨8,1000m,0%⟩  61.2ms  1234/s  17, deployed 18  24 %"},
		{"status digits -o json", `"p99_ms": 61.25`},
		{"status digits -o yaml", "state: misses"},
	} {
		if out, err := called(t, c.call); err != nil || !strings.Contains(out, c.want) || strings.Contains(c.call, "digits") && strings.Contains(out, "words") {
			t.Errorf("%s: %v\n%s", c.call, err, out)
		}
	}
	t.Setenv("COLUMNS", "60")
	out, err := called(t, "status")
	for line := range strings.Lines(out) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 60 {
			t.Errorf("%d characters: %s", n, line)
		}
	}
	if words := strings.Join(strings.Fields(out), " "); err != nil || !strings.Contains(words, "instances carry 390/s, no node has room") {
		t.Errorf("%v\n%s", err, out)
	}
}

// Other providers of OpenFaaS know instances, but no figures.
func TestPlainStatus(t *testing.T) {
	(&fakeProvider{}).serve(t)
	out, err := called(t, "status")
	for _, want := range []string{"broken        broken         2s        -     -    0/0  the model cannot be read: it ends too early [2J\n", "digits        ok           50ms        -     -    2/2\n", "words.team-a  ok"} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("no %q: %v\n%s", want, err, out)
		}
	}
}

// The list says which functions roll out a later revision, and has no column for that otherwise.
func TestListShowsRollouts(t *testing.T) {
	with := map[string]string{annotation.InferRollout: "revision 3 is sharing and gets 25 % of the requests"}
	all := []types.FunctionStatus{{Name: "a", Annotations: &with}, {Name: "b"}}
	var out strings.Builder
	for _, c := range []struct {
		all  []types.FunctionStatus
		want bool
	}{{all, true}, {all[1:], false}} {
		out.Reset()
		if err := listTable(c.all, time.Now()).Write(&out, false); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(out.String(), "ROLLOUT"); got != c.want || c.want && !strings.Contains(out.String(), "gets 25 %") {
			t.Errorf("%s", out.String())
		}
	}
}

func TestListAndLogs(t *testing.T) {
	(&fakeProvider{}).serve(t)
	for _, c := range []struct{ call, want, wrong string }{
		{"list", "digits  openfaas-fn  digits:v1       50ms    2/2         0", ""},
		{"list -n team-a", "words  team-a", ""},
		{"list -n nosuch", "", "there is no namespace nosuch; there are openfaas-fn, team-a"},
		{"status -n nosuch", "", "there is no namespace nosuch"},
		{"list -o json", `"availableReplicas": 2`, ""},
		{"list -o xml", "", "it must be one of table, wide, json, yaml"},
		{"logs digits", "loaded\n", ""},
		{"logs digits -t", " digits-1 loaded\n", ""},
		{"logs digits -o json", `"instance":"digits-1"`, ""},
		{"logs digit", "", "there is no function digit.openfaas-fn; did you mean digits?"},
		{"status digts", "", "did you mean digits?"},
		{"wait words", "", "did you mean words.team-a?"},
		{"wait digits --for redy", "", "did you mean ready?"},
	} {
		out, err := called(t, c.call)
		if !strings.Contains(out, c.want) || (c.wrong == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: %v\n%s", c.call, err, out)
		}
	}
}

func TestWait(t *testing.T) {
	f := &fakeProvider{}
	f.serve(t)
	f.starting.Store(2)
	for _, c := range []struct{ call, wrong string }{
		{"wait digits", ""},
		{"wait digits --for serving", ""},
		{"wait gone --for deleted", ""},
		{"wait digits --for idle --timeout 1ms", "digits is not idle after 1ms: "},
		{"wait broken --timeout 300ms", "broken is not ready after 300ms: the model cannot be read"},
	} {
		if _, err := called(t, c.call); (c.wrong == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: %v", c.call, err)
		}
	}
	if f.starting.Load() > 0 {
		t.Error("it did not wait for the second instance")
	}
	// While the earlier revision answers, the function is not ready.
	(&fakeProvider{figures: true}).serve(t)
	if _, err := called(t, "wait digits --timeout 300ms"); err == nil || !strings.Contains(err.Error(), "revision 17, deployed 18") {
		t.Errorf("two revisions: %v", err)
	}
	// A function that serves late is ready.
	if _, err := called(t, "wait slow --timeout 300ms"); err != nil {
		t.Errorf("one that is slow: %v", err)
	}
}

func TestLogin(t *testing.T) {
	url := (&fakeProvider{}).serve(t)
	config := t.TempDir()
	t.Setenv("OPENFAAS_CONFIG", config)
	file := filepath.Join(config, "config.yml")
	if err := os.WriteFile(file, []byte("auths:\n- gateway: https://other.example.com\n  auth: oauth2\n  token: abc\n  options:\n  - name: x\n    value: y\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	from := func(password string) error {
		root := NewRootCommand()
		root.SetIn(strings.NewReader(password))
		_, err := commandtest.Execute(t, root, "login", "--password-stdin")
		return err
	}
	if err := from("wrong"); err == nil || !strings.Contains(err.Error(), "refuses this user and password") || strings.Contains(err.Error(), "login") {
		t.Errorf("a wrong password: %v", err)
	}
	if _, err := execute(t, "list"); err == nil || !strings.Contains(err.Error(), "faas-infer login") {
		t.Errorf("without a login: %v", err)
	}
	if err := from("\n"); !errors.As(err, &usageError{}) {
		t.Errorf("no password: %v", err)
	}
	if err := from("secret\n"); err != nil {
		t.Fatal(err)
	}
	if out, err := execute(t, "list"); err != nil || !strings.Contains(out, "digits") {
		t.Errorf("after the login: %v\n%s", err, out)
	}
	text, err := os.ReadFile(file)
	for _, want := range []string{"token: abc", `value: "y"`, "gateway: " + url, "token: YWRtaW46c2VjcmV0"} {
		if err != nil || !bytes.Contains(text, []byte(want)) {
			t.Errorf("no %q in the file: %v\n%s", want, err, text)
		}
	}
	// On this machine nobody has to type the password that "faas-infer up" has made.
	t.Setenv("OPENFAAS_CONFIG", t.TempDir())
	secrets := filepath.Join(os.Getenv("XDG_STATE_HOME"), "faas-infer", "secrets")
	if err := os.MkdirAll(secrets, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(secrets, "basic-auth-password"), "secret\n")
	if out, err := execute(t, "login"); err != nil || !strings.Contains(out, "as admin") {
		t.Errorf("with a password that up has made: %v %s", err, out)
	}
	// A login may be older than that password.
	old := filepath.Join(os.Getenv("OPENFAAS_CONFIG"), "config.yml")
	write(t, old, "auths:\n- gateway: "+url+"\n  auth: basic\n  token: YWRtaW46b2xk\n")
	if _, err := execute(t, "list"); err != nil {
		t.Errorf("with a login of another password: %v", err)
	}
	stack := filepath.Join(t.TempDir(), "stack.yml")
	write(t, stack, "provider: {name: openfaas}\nfunctions: {digits: {image: digits:v2}}\n")
	if _, err := execute(t, "deploy", "-f", stack, "--wait"); err != nil {
		t.Errorf("a deployment with a login of another password: %v", err)
	}
	// A port of this machine may lead to another provider.
	write(t, filepath.Join(secrets, "basic-auth-password"), "another\n")
	if _, err := execute(t, "login"); err == nil || !strings.Contains(err.Error(), "no terminal to ask for the password") {
		t.Errorf("at a provider with another password: %v", err)
	}
	if _, err := execute(t, "list"); err == nil || !strings.Contains(err.Error(), "log in with faas-infer login") {
		t.Errorf("with two wrong passwords: %v", err)
	}
	t.Setenv("OPENFAAS_CONFIG", "")
	t.Setenv("CI", "true")
	if file, err := loginFile(); err != nil || file != ".openfaas/config.yml" {
		t.Errorf("in continuous integration: %s, %v", file, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file's mode: %v", err)
	}
}

func TestDeploy(t *testing.T) {
	f := &fakeProvider{}
	url := f.serve(t)
	t.Chdir(t.TempDir())
	write(t, "variables.yml", "environment:\n  A: file\n  B: file\n")
	write(t, "stack.yml", `version: 1.0
provider:
  name: openfaas
functions:
  digits:
    image: digits:v2
    environment_file: [variables.yml]
    environment: {B: own}
    annotations: {com.openfaas.slo.latency: 50ms}
  wrong:
    image: wrong:v1
`)
	f.starting.Store(2)
	for _, c := range []struct{ call, want, wrong string }{
		{"deploy digits", "Deployed digits.openfaas-fn: " + url + "/function/digits\n", ""},
		{"deploy digits --wait --annotation com.openfaas.slo.latency=80ms", "All are ready.", ""},
		{"deploy digit", "", "stack.yml has no function digit; did you mean digits?"},
		{"deploy digits --annotation latency", "", "it must be KEY=VALUE"},
		{"deploy", "", "wrong was not deployed: com.openfaas.slo.latency: it must be a duration"},
		{"deploy -f none.yml", "", "none.yml"},
		{"deploy digits --url http://127.0.0.1:1", "", "127.0.0.1:1 (--url); start one with faas-infer up"},
	} {
		out, err := called(t, c.call)
		if !strings.Contains(out, c.want) || (c.wrong == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: %v\n%s", c.call, err, out)
		}
	}
	if f.starting.Load() > 0 {
		t.Error("it did not wait")
	}
	if len(f.deployed) != 3 || !strings.Contains(f.deployed[0], `"50ms"`) || !strings.Contains(f.deployed[0], `"A":"file","B":"own"`) || !strings.Contains(f.deployed[1], `"80ms"`) {
		t.Errorf("deployed %q", f.deployed)
	}
	if _, err := execute(t, "deploy", "digits"); err == nil || !strings.Contains(err.Error(), "faas-infer login") {
		t.Errorf("without a password: %v", err)
	}
}

// A command says how to start a provider where none runs.
func TestNoProvider(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	for _, call := range []string{"status", "list", "wait x", "logs x", "async status", "variants x"} {
		if _, err := execute(t, append(strings.Fields(call), "--url=http://127.0.0.1:1")...); err == nil || !strings.Contains(err.Error(), "faas-infer up") {
			t.Errorf("%s: %v", call, err)
		}
	}
}

func TestCompletion(t *testing.T) {
	(&fakeProvider{}).serve(t)
	if err := os.MkdirAll(filepath.Join(os.Getenv("XDG_STATE_HOME"), "faas-infer", "secrets"), 0o700); err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(os.Getenv("XDG_STATE_HOME"), "faas-infer", "secrets", "basic-auth-password")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for call, want := range map[string]string{
		"status ": "broken\ndigits\nwords.team-a\n", "wait --for ": "ready\nserving\n", "list --namespace ": "openfaas-fn\nteam-a\n",
		"deploy --annotation ":           "com.openfaas.slo.latency=\n",
		"wait --url=http://127.0.0.1:1 ": ":4\n", "up --policy ": "shared\n", "provider --scheduler ": "greedy\n", "up --gateway ": "stock\n", "model make ": "mnist",
	} {
		out, err := execute(t, append([]string{"__complete"}, strings.Split(call, " ")...)...)
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%q: %v\n%s", call, err, out)
		}
	}
}
