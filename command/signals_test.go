package command

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/faas-infer/faas-infer/command/commandtest"
)

// provide starts the provider as a process, by way of a command such as sh if there is one. It returns the
// process, the URL, and the reading end of its standard error.
func provide(t *testing.T, way ...string) (*exec.Cmd, string, io.Closer) {
	t.Helper()
	dir := t.TempDir()
	c := commandtest.Command("provider", "--listen", "127.0.0.1:0", "--nats-listen", "off", "--gpus", "none", "--drain", "1m", "--log-level", "debug",
		"--state", filepath.Join(dir, "state"), "--bundles", filepath.Join(dir, "bundles"), "--no-cgroups")
	if len(way) > 0 {
		through := exec.Command(way[0], slices.Concat(way[1:], c.Args)...)
		through.Env, c = c.Env, through
	}
	stderr, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stderr.Close() })
	c.Stderr = theirs
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Process.Kill() })
	theirs.Close()
	var said struct{ Message, Address string }
	lines := bufio.NewScanner(stderr)
	for said.Message != "serving" {
		if !lines.Scan() {
			t.Fatalf("it ends before it serves: %v", lines.Err())
		}
		_ = json.Unmarshal(lines.Bytes(), &said)
	}
	go io.Copy(io.Discard, stderr)
	return c, "http://" + said.Address, stderr
}

// The first SIGTERM, SIGINT or SIGHUP stops the provider in order.
func TestSignalsThatStop(t *testing.T) {
	if signal.Ignored(syscall.SIGHUP) { // Under nohup, and what this process starts would ignore it, too.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
		t.Cleanup(func() { signal.Ignore(syscall.SIGHUP) })
	}
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			c, _, _ := provide(t)
			if err := c.Process.Signal(s); err != nil {
				t.Fatal(err)
			}
			if err := c.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Neither SIGHUP under nohup nor a closed standard error ends the provider.
func TestSignalsThatDoNot(t *testing.T) {
	for name, c := range map[string]struct {
		way  []string
		have func(c *exec.Cmd, stderr io.Closer) error
	}{
		"nohup": {[]string{"sh", "-c", `trap "" HUP; exec "$@"`, "sh"}, func(c *exec.Cmd, _ io.Closer) error { return c.Process.Signal(syscall.SIGHUP) }},
		"pipe":  {nil, func(_ *exec.Cmd, stderr io.Closer) error { return stderr.Close() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, url, stderr := provide(t, c.way...)
			if err := c.have(p, stderr); err != nil {
				t.Fatal(err)
			}
			for _, path := range []string{"/function/none", "/healthz", "/healthz"} { // The first is logged.
				response, err := http.Get(url + path)
				if err != nil {
					t.Fatal(err)
				}
				response.Body.Close()
			}
			if err := p.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if err := p.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}
