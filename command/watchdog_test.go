package command

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestWatchdogProcess starts the watchdog as a process, as the provider does,
// asks it and ends it with SIGTERM.
func TestWatchdogProcess(t *testing.T) {
	folder := t.TempDir()
	socket := filepath.Join(folder, "s")
	serve := helperCommand("watchdog", "--bundle", folder, "--name", "f", "--listen", "unix://"+socket)
	serve.Env = append(serve.Env, "mode=classic", `fprocess=sh -c 'pwd; cat; echo $(ls /proc/self/fd); echo "$FAAS_INFER_READY_FD$FAAS_INFER"'`)
	startUntilReady(t, serve)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	response, err := client.Post("http://f/", "text/plain", strings.NewReader("hello\n"))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	self, _ := os.Executable()
	// ls has three streams and the directory: it inherits nothing else.
	if want := folder + "\nhello\n0 1 2 3\n" + self + "\n"; err != nil || string(body) != want {
		t.Errorf("it answers %q, %v; want %q", body, err, want)
	}
	if err := serve.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := serve.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
}

func TestWatchdogSaysWhatIsWrong(t *testing.T) {
	for want, env := range map[string][]string{
		"fprocess is missing": {"fprocess="},
		"exec_timeout":        {"fprocess=cat", "exec_timeout=soon"},
		"no-such-program":     {"fprocess=no-such-program"},
		"ended: exit":         {"fprocess=sh -c 'exit 5'", "mode=http"},
	} {
		c := helperCommand("watchdog", "--bundle", t.TempDir())
		c.Env = append(c.Env, env...)
		out, err := c.CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, %s", want, err, out)
		}
	}
}
