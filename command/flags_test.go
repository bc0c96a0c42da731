package command

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestOriginsThatNoBrowserSendsAreRefused(t *testing.T) {
	for origin, good := range map[string]bool{
		"*": true, "https://console.example.com": true, "http://localhost:3000": true, "http://[::1]:3000": true,
		"console.example.com": false, "https://console.example.com/": false, "https://console.example.com/ui": false,
		"//console.example.com": false, "https://": false, "https://user@console.example.com": false, "null": false,
	} {
		var f ProviderFlags
		flags := pflag.NewFlagSet("provider", pflag.ContinueOnError)
		f.register(flags)
		dir := t.TempDir()
		if err := flags.Parse([]string{"--state", dir, "--prepared", dir, "--cors-origin", origin}); err != nil {
			t.Fatal(err)
		}
		err := f.complete()
		if good != (err == nil) || err != nil && !strings.Contains(err.Error(), "--cors-origin") {
			t.Errorf("%q: %v", origin, err)
		}
	}
}

func TestAllowedHosts(t *testing.T) {
	for host, good := range map[string]bool{
		"*": true, "provider.example.com": true, "gpu-box": true,
		"http://gpu-box": false, "gpu-box:8081": false, "gpu-box/": false,
	} {
		var f ProviderFlags
		flags := pflag.NewFlagSet("provider", pflag.ContinueOnError)
		f.register(flags)
		dir := t.TempDir()
		if err := flags.Parse([]string{"--state", dir, "--prepared", dir, "--listen", "here:80", "--allow-host", "other", "--allow-host=" + host}); err != nil {
			t.Fatal(err)
		}
		err := f.complete()
		if good != (err == nil) || err != nil && !strings.Contains(err.Error(), "--allow-host") {
			t.Errorf("%q: %v", host, err)
		}
		if got := f.Hosts(); got[0] != "here" || got[1] != "other" {
			t.Errorf("%q are allowed", got)
		}
	}
}

// A provider does not start with keys that would let nobody in.
func TestWrongAccessKeys(t *testing.T) {
	for text, want := range map[string]string{"": "it is empty", "short": "line 1: an API key must have", strings.Repeat("k", 32): ""} {
		dir := t.TempDir()
		f := ProviderFlags{accessKeys: filepath.Join(dir, "keys")}
		if err := checkAccessKeys(f.accessKeys); err == nil || !strings.Contains(err.Error(), "--access-keys "+f.accessKeys+": open ") {
			t.Errorf("without a file: %v", err)
		}
		if err := os.WriteFile(f.accessKeys, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := checkAccessKeys(f.accessKeys); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), "--access-keys "+f.accessKeys+": "+want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// Cores on which this process may not run are refused: instances would not start there.
func TestCheckCores(t *testing.T) {
	if err := checkCores(nil); err != nil {
		t.Error(err)
	}
	for _, core := range []int{-1, 1 << 20} {
		if err := checkCores([]int{core}); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("--cores %d: ", core)) {
			t.Errorf("%d: %v", core, err)
		}
	}
}
