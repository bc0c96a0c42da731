package kubernetes

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"
)

// What cannot work is refused before anything is read.
func TestImportRefuses(t *testing.T) {
	for want, arguments := range map[string][]string{
		"--timeout 0s":              {"--timeout", "0s"},
		"--keep-running has no":     {"--undo", "--keep-running"},
		"cannot reach the cluster:": {"--kubeconfig", filepath.Join(t.TempDir(), "absent")},
	} {
		c := NewImportCommand()
		c.SetArgs(arguments)
		c.SilenceUsage, c.SilenceErrors = true, true
		c.SetOut(io.Discard)
		if err := c.Execute(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", arguments, err, want)
		}
	}
}

// The kubelet's file of plugins works for the provider, too.
func TestOwnCredentials(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, []byte("apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n- {name: sh, apiVersion: credentialprovider.kubelet.k8s.io/v1, matchImages: [a.example], defaultCacheDuration: 1h}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for what, test := range map[string]struct {
		flags credentialFlags
		err   string
	}{
		"none":      {credentialFlags{}, ""},
		"both":      {credentialFlags{config, "/bin"}, ""},
		"one":       {credentialFlags{config, ""}, "belong together"},
		"the other": {credentialFlags{"", "/bin"}, "belong together"},
		"no plugin": {credentialFlags{config, dir}, "--image-credential-provider-config: " + config + ": providers[0]: sh: "},
	} {
		k, err := test.flags.keychain(zerolog.Nop())
		if (k == nil) != (test.err != "") || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: %v, %v", what, k, err)
		}
	}
}
