package command

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDoctor(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_STATE_HOME", filepath.Join(home, "state"))
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	taken := other.Listener
	file := filepath.Join(home, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ arguments, blocks string }{
		{"--listen 127.0.0.1:0", ""},
		{"--listen " + taken.Addr().String(), "address"},
		{"--listen 127.0.0.1:0 --state " + file + "/state", "state directory"},
		{"--listen nowhere", "address"},
		{"--listen 127.0.0.1:0 --state /proc/none/state", "state directory"},
	} {
		out, err := execute(t, append([]string{"doctor", "-o", "json"}, strings.Fields(c.arguments)...)...)
		var found []diagnosis
		if err := json.Unmarshal([]byte(out), &found); err != nil || len(found) < 12 {
			t.Fatalf("%v\n%s", err, out)
		}
		var blocks []string
		for _, d := range found {
			if d.State != healthy && d.Fix == "" || d.Found == "" {
				t.Errorf("%s: no fix for %+v", c.arguments, d)
			}
			if strings.Contains(c.arguments, "nowhere") && strings.Contains(d.Fix, "stop") || strings.Contains(d.Found, "/proc cannot") {
				t.Errorf("%s: a wrong fix for %+v", c.arguments, d)
			}
			if d.State == blocked {
				blocks = append(blocks, d.Part)
			}
		}
		if strings.Join(blocks, ",") != c.blocks || (err == nil) != (c.blocks == "") || err != nil && exitCode(err) != 1 {
			t.Errorf("%s: %v blocks, %v", c.arguments, blocks, err)
		}
	}
	if left, err := os.ReadDir(home); err != nil || len(left) != 1 {
		t.Errorf("it left %v, %v", left, err)
	}
	t.Setenv("COLUMNS", "60")
	if out, err := execute(t, "doctor", "--listen", taken.Addr().String()); err == nil || !strings.Contains(out, "\n    listen tcp 127.0.0.1:") || !strings.Contains(strings.Join(strings.Fields(out), " "), "Fix: stop the program") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestSetupWithoutNetwork(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("FAAS_INFER_ONNXRUNTIME", "")
	t.Setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
	for _, c := range []struct{ call, want string }{
		{"setup", "no network: "},
		{"setup", "faas-infer setup --from"},
		{"setup --from none.whl", "no such file"},
		{"setup here", "unknown command"},
	} {
		if _, err := execute(t, strings.Fields(c.call)...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.call, err)
		}
	}
	there := filepath.Join(t.TempDir(), "lib.so")
	t.Setenv("FAAS_INFER_ONNXRUNTIME", there)
	if _, err := execute(t, "setup"); err == nil || !strings.Contains(err.Error(), "unset it") {
		t.Errorf("a library that is not there: %v", err)
	}
	if err := os.WriteFile(there, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := execute(t, "setup"); err != nil || !strings.Contains(out, there) {
		t.Errorf("a library that is there: %v %s", err, out)
	}
}

// Where the home cannot be written, each command says which directory to give instead.
func TestUnwritableHome(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	(&fakeProvider{}).serve(t)
	for _, variable := range []string{"HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "OPENFAAS_CONFIG"} {
		t.Setenv(variable, file)
	}
	for call, want := range map[string]string{
		"up --stack= --listen 127.0.0.1:0": "--state", "provider --listen 127.0.0.1:0": "--state", "bundle mnist --image a:v1": "--root",
		"login --password-file " + t.TempDir(): "--password-file", "doctor --listen 127.0.0.1:0": "state directory, cache",
	} {
		if _, err := execute(t, strings.Fields(call)...); err == nil || !strings.Contains(err.Error(), want) || exitCode(err) != 1 {
			t.Errorf("%s: %v", call, err)
		}
	}
	if out, err := called(t, "login"); err == nil || !strings.Contains(err.Error(), "OPENFAAS_CONFIG") && !strings.Contains(err.Error(), "file of credentials") {
		t.Errorf("login: %v\n%s", err, out)
	}
}
