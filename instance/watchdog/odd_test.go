package watchdog

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestProgramIsLookedUpInTheFunctionsPath(t *testing.T) {
	folder := t.TempDir()
	program := filepath.Join(folder, "p")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := lookUp("p", "", []string{"PATH=/none:" + folder}); err != nil || got != program {
		t.Errorf("%s, %v", got, err)
	}
	if got, err := lookUp("sh", "", []string{"PATH=" + folder}); err == nil {
		t.Errorf("found %s", got)
	}
}

// A connection stays usable after a request, however the process and its input ended.
func TestRequestsOfOneConnection(t *testing.T) {
	for _, mode := range []string{"classic", "streaming"} {
		i := begin(t, map[string]string{"mode": mode, "fprocess": "cat"})
		input := strings.Repeat("x", 100_000)
		for n := range 100 {
			if body, err := post(t.Context(), i, input); err != nil || body != input {
				t.Fatalf("%s %d: %d bytes, %v: %.30q", mode, n, len(body), err, body)
			}
		}
		i.stop()
		<-i.stopped
		i.server.Close()
	}
}

// TestInputThatNobodyReads covers a pipe that stays full.
func TestInputThatNobodyReads(t *testing.T) {
	for _, mode := range []string{"classic", "streaming"} {
		i := begin(t, map[string]string{"mode": mode, "fprocess": "sh -c 'exec 3<&0; setsid sleep 300 <&3 & echo done'"})
		inTime(t, mode, 2, func() error { return i.says(strings.Repeat("x", 1<<20), "done\n") })
		i.stop()
		<-i.stopped
		i.server.Close()
	}
}

func TestRequestThatNoEnvironmentHolds(t *testing.T) {
	i := begin(t, map[string]string{"mode": "classic", "fprocess": "cat"})
	for _, big := range []func(*http.Request){header("X-Big", strings.Repeat("x", 200_000)), func(r *http.Request) { r.URL.RawQuery = strings.Repeat("x", 200_000) }} {
		if response, body := i.do("GET", "/", nil, big); response.StatusCode != 431 || !strings.Contains(body, "headers, path or query") {
			t.Errorf("%s %q", response.Status, body)
		}
	}
	if response, body := i.do("GET", "/", strings.NewReader("fine")); response.StatusCode != 200 || body != "fine" {
		t.Errorf("then %s %q", response.Status, body)
	}
}
