package command

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The credentials of "faas-infer up" are sent only to this machine.
func TestRemoteCredentials(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_STATE_HOME", home)
	t.Setenv("HOME", home)
	a := &remote{}
	at := func(host string) *url.URL { return &url.URL{Scheme: "http", Host: host} }
	if _, password, _, err := a.credentials(at("127.0.0.1:8080")); password != "" || err != nil {
		t.Errorf("none have been made: %q %v", password, err)
	}
	made := filepath.Join(home, "faas-infer", "secrets")
	if err := os.MkdirAll(made, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"basic-auth-user": "admin", "basic-auth-password": "secret"} {
		if err := os.WriteFile(filepath.Join(made, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for host, want := range map[string]bool{"127.0.0.1": true, "localhost": true, "[::1]:8080": true, "10.0.0.5": false, "example.com": false} {
		user, password, _, err := a.credentials(at(host))
		if err != nil || (password != "") != want || want && user != "admin" {
			t.Errorf("%s: %q %q %v", host, user, password, err)
		}
	}
	a.passwordFile = filepath.Join(home, "none")
	if _, _, _, err := a.credentials(at("example.com")); err == nil || !strings.Contains(err.Error(), "--password-file") {
		t.Error(err)
	}
}

// As for faas-cli, the flag counts before a file's gateway that is not the default, that before the variable, and that
// before the default.
func TestRemoteURL(t *testing.T) {
	for _, c := range []struct{ flag, gateway, variable, want, from string }{
		{"", "", "", localProvider, "the default"}, {"http://flag", "http://gateway", "http://variable", "http://flag", "--url"},
		{"", "", "https://variable:1/", "https://variable:1/", "OPENFAAS_URL"}, {"", "", "variable:1", "http://variable:1", "OPENFAAS_URL"},
		{"", "http://gateway", "http://variable", "http://gateway", "stack.yml's gateway"}, {"", localProvider + "/", "", localProvider, "the default"},
		{"", localProvider, "http://variable", "http://variable", "OPENFAAS_URL"}, {"127.0.0.1:1", "", "", "http://127.0.0.1:1", "--url"},
	} {
		t.Setenv("OPENFAAS_URL", c.variable)
		if at, from := (&remote{url: c.flag, gateway: c.gateway, file: "stack.yml"}).address(); at != c.want || from != c.from {
			t.Errorf("%+v: %s from %s", c, at, from)
		}
	}
	t.Setenv("OPENFAAS_URL", "http://")
	if _, err := execute(t, "async", "status"); err == nil || !strings.Contains(err.Error(), `OPENFAAS_URL "http://": it must be`) {
		t.Error(err)
	}
	if out, err := execute(t, "async", "--help"); err != nil || !strings.Contains(out, "(default $OPENFAAS_URL, or http://127.0.0.1:8080)") {
		t.Errorf("%s %v", out, err)
	}
}
