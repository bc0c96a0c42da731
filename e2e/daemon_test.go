package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/instance/engine"
)

// patience bounds how long tests wait. The wait ends at once on success, so the bound is
// long: the machine is shared and may stall for seconds, and models are measured in full with CPU time
// that nothing else needs.
const patience = 4 * time.Minute

// place has the directories of one provider. They outlive the provider's process, and
// another provider can take over.
type place struct {
	dir, state, bundles string
	// user runs the processes, nil for this process's own.
	user *syscall.Credential
	// extra is added to their environment.
	extra []string
	// network is where they run, nil for that of the tests.
	network *network
}

// newPlace makes the directories. At the test's end nothing of a provider may be left
// there; otherwise the test fails, and the leftovers are killed by their pid.
func newPlace(t *testing.T) *place {
	t.Helper()
	dir, err := os.MkdirTemp("", "fi-e2e-")
	if err != nil {
		t.Fatal(err)
	}
	p := &place{dir: dir, state: filepath.Join(dir, "state"), bundles: filepath.Join(dir, "bundles")}
	known, err := os.ReadFile(suite.operators)
	if err == nil {
		err = os.MkdirAll(p.state, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(p.state, filepath.Base(suite.operators)), known, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if onCluster != nil {
			onCluster.clear(t)
		}
		p.killAll(t)
		os.RemoveAll(dir)
	})
	return p
}

// daemon is a running "faas-infer provider" or "faas-infer up".
type daemon struct {
	*place
	// url is the provider's; who asks it again and again does so by one connection.
	url     string
	own     *http.Client
	process *exec.Cmd
	log     string
	out     string
	exited  chan struct{}
	code    int
}

// run starts the binary with arguments, followed by the flags for the directories.
func (p *place) run(t *testing.T, binary string, arguments ...string) *daemon {
	t.Helper()
	d := &daemon{place: p, own: p.network.client(t), exited: make(chan struct{})}
	log, err := os.CreateTemp(p.dir, "log-*")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	out, err := os.CreateTemp(p.dir, "out-*")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	d.log, d.out = log.Name(), out.Name()
	switch {
	case onCluster != nil:
		binary, arguments = onCluster.Provider, onCluster.providerArguments(p, arguments)
	case p.user != nil:
		arguments = append(arguments, "--state", p.state, "--bundles", p.bundles)
	default:
		arguments = append(arguments, "--state", p.state, "--bundles", p.bundles, "--prepared", suite.prepared)
	}
	d.process = exec.Command(binary, arguments...)
	d.process.Stdout, d.process.Stderr = out, log
	d.process.Env = append(append(os.Environ(), "FAAS_INFER_ONNXRUNTIME="+suite.library, "TMPDIR="+p.dir), p.extra...)
	if onCluster != nil {
		d.process.Env = append(d.process.Env, onCluster.environment()...)
	}
	// Should the tests be killed, it stops in order.
	d.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM, Credential: p.user}
	if err := p.network.start(d.process); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = d.process.Wait() // The code says all.
		d.code = d.process.ProcessState.ExitCode()
		close(d.exited)
	}()
	t.Cleanup(func() { d.finish(t) })
	return d
}

// provider starts "faas-infer provider" on a free port and waits until it serves.
func (p *place) provider(t *testing.T, binary string, arguments ...string) *daemon {
	t.Helper()
	return p.providerAt(t, binary, "127.0.0.1:0", arguments...)
}

func (p *place) providerAt(t *testing.T, binary, listen string, arguments ...string) *daemon {
	t.Helper()
	// The port for gateways is for one at a time. Where a flag comes twice, the
	// later counts.
	arguments = append([]string{"provider", "--listen", listen, "--nats-listen", "off"}, arguments...)
	d := p.run(t, binary, arguments...)
	d.url = "http://" + d.awaitLine(t, "serving", patience)["address"].(string)
	return d
}

// awaitLine waits for a line of the log with this message and returns it.
func (d *daemon) awaitLine(t *testing.T, message string, patience time.Duration) map[string]any {
	t.Helper()
	var found map[string]any
	d.await(t, patience, "log line "+message, func() bool {
		for _, line := range d.lines() {
			if line["message"] == message {
				found = line
			}
		}
		return found != nil
	})
	return found
}

// lines returns the log's lines that are JSON.
func (d *daemon) lines() []map[string]any {
	var lines []map[string]any
	for line := range strings.Lines(d.logText()) {
		var fields map[string]any
		if json.Unmarshal([]byte(line), &fields) == nil {
			lines = append(lines, fields)
		}
	}
	return lines
}

// lacks reports whether the provider has logged that it lacks the rights for something
// whose description contains word.
func (d *daemon) lacks(word string) bool {
	for _, line := range d.lines() {
		all, _ := line["lacking"].([]any)
		for _, what := range all {
			if text, _ := what.(string); strings.Contains(text, word) {
				return true
			}
		}
	}
	return false
}

func (d *daemon) logText() string { return readAll(d.log) }

// output returns the standard output.
func (d *daemon) output() string { return readAll(d.out) }

func readAll(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// await is [await] that fails as soon as the daemon exits.
func (d *daemon) await(t *testing.T, patience time.Duration, what string, done func() bool) {
	t.Helper()
	await(t, patience, what, func() bool {
		if done() {
			return true
		}
		select {
		case <-d.exited:
			if !done() {
				t.Fatalf("waiting for %s: the process exited with code %d:\n%s", what, d.code, d.tail())
			}
			return true
		default:
			return false
		}
	})
}

// await polls until done, or fails the test.
func await(t *testing.T, patience time.Duration, what string, done func() bool) {
	t.Helper()
	if !within(patience, done) {
		t.Fatalf("waited %v in vain for %s", patience, what)
	}
}

// within polls until done, or returns false.
func within(patience time.Duration, done func() bool) bool {
	for end := time.Now().Add(patience); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// signal sends a signal to the process, not to its instances.
func (d *daemon) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := d.process.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
}

// exit waits for the process's end and returns its code.
func (d *daemon) exit(t *testing.T, patience time.Duration) int {
	t.Helper()
	select {
	case <-d.exited:
	case <-time.After(patience):
		d.signal(t, syscall.SIGQUIT) // Its goroutines tell why.
		<-d.exited
		t.Fatalf("the process did not exit within %v:\n%s", patience, d.tail())
	}
	return d.code
}

// kill kills the process, as a crash would end it.
func (d *daemon) kill(t *testing.T) {
	t.Helper()
	d.signal(t, syscall.SIGKILL)
	<-d.exited
}

// stop stops the process with SIGTERM: the exit code must be 0, and nothing may be left.
func (d *daemon) stop(t *testing.T) {
	t.Helper()
	d.signal(t, syscall.SIGTERM)
	if code := d.exit(t, patience); code != 0 {
		t.Errorf("exit code %d after SIGTERM:\n%s", code, d.tail())
	}
	d.nothingLeft(t)
}

// finish is the cleanup. It stops a running process, in order if possible, and checks the
// log.
func (d *daemon) finish(t *testing.T) {
	select {
	case <-d.exited:
	default:
		d.signal(t, syscall.SIGTERM)
		select {
		case <-d.exited:
		case <-time.After(30 * time.Second):
			d.kill(t)
		}
	}
	text := d.logText()
	for _, bad := range []string{"DATA RACE", "panic:", "fatal error:"} {
		if strings.Contains(text, bad) {
			t.Errorf("the log says %s", bad)
		}
	}
	if !t.Failed() {
		return
	}
	t.Logf("log of pid %d:\n%s", d.process.Process.Pid, d.tail())
	if keep := os.Getenv("FAAS_INFER_KEEP_LOGS"); keep != "" {
		name := strings.ReplaceAll(t.Name(), "/", "-") + "-" + strconv.Itoa(d.process.Process.Pid) + ".log"
		if err := os.WriteFile(filepath.Join(keep, name), []byte(text), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// tail returns the end of the log.
func (d *daemon) tail() string {
	text := d.logText()
	var lines []string
	for s := bufio.NewScanner(strings.NewReader(text)); s.Scan(); {
		lines = append(lines, s.Text())
	}
	if n := len(lines); n > 60 {
		lines = append([]string{"…"}, lines[n-60:]...)
	}
	return strings.Join(lines, "\n")
}

// freeAddress returns an unused address, for a provider that will restart at it.
func freeAddress(t *testing.T) string {
	t.Helper()
	address, err := engine.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	return address
}
