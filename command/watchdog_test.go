package command

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/command/commandtest"
	"github.com/faas-infer/faas-infer/instance/mutual"
	"github.com/faas-infer/faas-infer/instance/mutual/mutualtest"
)

// TestWatchdogProcess starts the watchdog as a process, as the provider does,
// asks it and ends it with SIGTERM.
func TestWatchdogProcess(t *testing.T) {
	folder := t.TempDir()
	socket := filepath.Join(folder, "s")
	serve := commandtest.Command("watchdog", "--bundle", folder, "--name", "f", "--listen", "unix://"+socket)
	serve.Env = append(serve.Env, "mode=classic", `fprocess=sh -c 'pwd; cat; echo $(ls /proc/self/fd); echo "$FAAS_INFER_READY_FD$FAAS_INFER"'`)
	commandtest.UntilReady(t, serve)
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

// With a certificate only the provider reaches the program. Health, and the paths of the function's probes,
// are open to all.
func TestWatchdogTLS(t *testing.T) {
	a := mutualtest.NewAuthority(t, time.Now().Add(time.Hour))
	issue := func(name string) string {
		dir := t.TempDir()
		a.Issue(t, dir, mutualtest.Certificate{Names: []string{name}})
		return dir
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	serve := commandtest.Command("watchdog", "--bundle", t.TempDir(), "--name", "f", "--listen", "tcp://"+address, "--tls", issue(mutual.InstanceName), "--open", "/up")
	serve.Env = append(serve.Env, "mode=classic", "fprocess=cat")
	commandtest.UntilReady(t, serve)
	for _, c := range []struct {
		certificate, network, request string
		status                        int
	}{
		{mutual.ProviderName, mutual.Network, "POST /", 200}, {mutual.InstanceName, mutual.Network, "POST /", 401},
		{mutual.ProviderName, "tcp", "POST /", 401}, {mutual.ProviderName, "tcp", "GET /", 401}, {mutual.ProviderName, "tcp", "POST /up", 401},
		{mutual.ProviderName, "tcp", "GET /_/health", 200}, {mutual.ProviderName, "tcp", "GET /_/ready", 200},
		{mutual.ProviderName, "tcp", "GET /_/metrics", 200}, {mutual.ProviderName, "tcp", "GET /up", 200},
	} {
		i, err := mutual.Open(issue(c.certificate), c.certificate, zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return i.Dial(ctx, c.network, address)
		}}}
		method, path, _ := strings.Cut(c.request, " ")
		r, err := http.NewRequestWithContext(t.Context(), method, "http://f"+path, strings.NewReader("hello"))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(r)
		if err != nil {
			t.Errorf("%v: %v", c, err)
			continue
		}
		text, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode != c.status || method == "POST" && c.status == 200 && string(text) != "hello" {
			t.Errorf("%v: %d %s", c, answer.StatusCode, text)
		}
	}
}

func TestWatchdogSaysWhatIsWrong(t *testing.T) {
	for want, env := range map[string][]string{
		"fprocess is missing": {"fprocess="},
		"exec_timeout":        {"fprocess=cat", "exec_timeout=soon"},
		"no-such-program":     {"fprocess=no-such-program"},
		"ended: exit":         {"fprocess=sh -c 'exit 5'", "mode=http"},
	} {
		c := commandtest.Command("watchdog", "--bundle", t.TempDir())
		c.Env = append(c.Env, env...)
		out, err := c.CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, %s", want, err, out)
		}
	}
}

// A function's PATH does not depend on the provider's. Its own environment comes first (package sandbox).
func TestFunctionsHaveAStandardPath(t *testing.T) {
	t.Setenv("PATH", "/provider/own:"+os.Getenv("PATH"))
	_, env := watchdogCommand(cluster.InstanceSpec{Function: "f.openfaas-fn", Kind: cluster.Process}, "/socket")
	if want := "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"; !slices.Contains(env, want) {
		t.Errorf("%q has no %s", env, want)
	}
}
