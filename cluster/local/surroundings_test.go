package local

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster"
)

func TestMissingRightsAreSaidOnce(t *testing.T) {
	var said bytes.Buffer
	o := options(t.TempDir(), true)
	o.Logger = zerolog.New(&said)
	b := open(t, o)
	begin(t, b, spec("one", "serving"))
	expect(t, b, "one", cluster.Ready)
	if err := b.Stop(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(said.String(), `"level":"warn"`); got != 1 {
		t.Errorf("%d warnings: %s", got, said.String())
	}
	for _, word := range []string{"cgroups", "threads", "FAAS_INFER_SECRETS_DIR"} {
		if !strings.Contains(said.String(), word) {
			t.Errorf("the warning does not speak of %s: %s", word, said.String())
		}
	}
}

func TestEnvironment(t *testing.T) {
	t.Setenv("PROVIDER_TOKEN", "private")
	o := options(t.TempDir(), false)
	command := o.Command
	o.Command = func(s cluster.InstanceSpec, socket string) (argv, env []string) {
		argv, env = command(s, socket)
		return argv, append(env, "BOTH=command")
	}
	b := open(t, o)
	s := spec("one", "serving")
	s.Env["BOTH"], s.Env["OWN"], s.Env["LD_PRELOAD"] = "function", "1", "/no/such.so"
	instance := begin(t, b, s)
	expect(t, b, "one", cluster.Ready)
	got := ask(t, instance, "/environ")
	for _, want := range []string{"\nBOTH=command", "_BOTH=function", "_OWN=1", "_LD_PRELOAD=/no/such.so", "FAAS_INFER_READY_FD=3", "PATH="} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is missing in %s", want, got)
		}
	}
	if strings.Contains(got, "\nLD_PRELOAD") {
		t.Errorf("the function's variables mean something to its main process: %s", got)
	}
	if strings.Contains(got, "PROVIDER_TOKEN") || strings.Contains(got, "FAAS_INFER_SANDBOX") {
		t.Errorf("too much in %s", got)
	}
}

func TestSecrets(t *testing.T) {
	eachWay(t, func(t *testing.T, bare bool) {
		b := open(t, options(t.TempDir(), bare))
		file := filepath.Join(t.TempDir(), "value")
		if err := os.WriteFile(file, []byte("s3cr3t"), 0o600); err != nil {
			t.Fatal(err)
		}
		with := spec("with", "serving")
		with.Secrets = map[string]string{"api-key": file}
		inside := begin(t, b, with)
		expect(t, b, "with", cluster.Ready)
		outside := begin(t, b, spec("without", "serving"))
		expect(t, b, "without", cluster.Ready)
		if got := ask(t, inside, "/read?file=SECRETS/api-key"); got != "s3cr3t<nil>" {
			t.Errorf("its own secret: %q", got)
		}
		if got := ask(t, outside, "/read?file=SECRETS/api-key"); strings.Contains(got, "s3cr3t") {
			t.Errorf("another's secret: %q", got)
		}
		if _, err := os.Stat("/var/openfaas/secrets/api-key"); err == nil {
			t.Error("the secret is seen on the machine")
		}
	})
}

func TestLogsAreKeptAndRotated(t *testing.T) {
	o := options(t.TempDir(), true)
	o.LogBytes, o.LogFiles = 4, 2
	b := open(t, o)
	begin(t, b, spec("one", "serving"))
	expect(t, b, "one", cluster.Ready)
	b.rotateLogs()
	path := b.logs.Path("f.openfaas-fn", "one")
	if got, err := os.ReadFile(path + ".1"); err != nil || string(got) != "serving\n" {
		t.Errorf("rotated log: %q, %v", got, err)
	}
	if got, err := os.ReadFile(path); err != nil || len(got) != 0 {
		t.Errorf("log after its rotation: %q, %v", got, err)
	}
	for _, id := range []string{"two", "three", "four"} {
		begin(t, b, spec(id, "failing"))
		expect(t, b, cluster.InstanceID(id), cluster.Exited)
	}
	if err := b.Stop(t.Context(), "four"); err != nil {
		t.Fatal(err)
	}
	entries, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*.log"))
	if err != nil || len(entries) != 3 {
		t.Errorf("logs %v, %v, want those of the living and of the last two gone", entries, err)
	}
}

func TestSocketsOfADeepDirectoryLieElsewhere(t *testing.T) {
	deep := filepath.Join(t.TempDir(), strings.Repeat("d", 60), strings.Repeat("d", 60))
	b := open(t, options(deep, true))
	instance := begin(t, b, spec("one", "serving"))
	expect(t, b, "one", cluster.Ready)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b = open(t, options(deep, true)) // The next provider finds it.
	if got := ask(t, instance, "/read?file=/dev/null"); got != "<nil>" {
		t.Errorf("it answers %q on %s", got, instance.Address)
	}
	if err := b.Stop(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, b)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(b.layout.sockets); err == nil {
		t.Error("the directory for sockets is left")
	}
}

// No other user can keep the provider from starting by taking the place of its directory for sockets, nor have it
// use one that is not its own alone.
func TestTheDirectoryForSocketsCannotBeTaken(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 90))
	sockets := func() string {
		t.Helper()
		l, err := newLayout(dir)
		if err == nil {
			err = l.openSockets()
		}
		if err != nil || !ownAlone(l.sockets) {
			t.Fatalf("%q, %v", l.sockets, err)
		}
		return l.sockets
	}
	take := map[string]func(path string) error{
		"absent": os.Remove,
		"open":   func(path string) error { return os.Chmod(path, 0o755) },
		"a link": func(path string) error {
			return errors.Join(os.Rename(path, path+"-away"), os.Symlink(path+"-away", path))
		},
		"a file": func(path string) error { return errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o700)) },
	}
	if os.Geteuid() == 0 {
		take["of another user"] = func(path string) error { return os.Chown(path, 1, 1) }
	}
	for how, change := range take {
		made := sockets()
		if again := sockets(); again != made {
			t.Errorf("the next provider takes %s, not %s", again, made)
		}
		if err := change(made); err != nil {
			t.Fatal(err)
		}
		if again := sockets(); how != "absent" && again == made {
			t.Errorf("%s: it takes %s all the same", how, made)
		}
	}
}
