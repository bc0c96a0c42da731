package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/zoo"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/latency"
)

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A model file is read again when it, or a file of weights beside it, has
// changed, and only then.
func TestModelHashIsRemembered(t *testing.T) {
	file := filepath.Join(t.TempDir(), "model.onnx")
	m := &childModels{}
	if _, err := m.Hash(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no such file: %v", err)
	}
	write(t, file, "one")
	hash := func() string {
		t.Helper()
		h, err := m.Hash(file)
		if err != nil {
			t.Fatal(err)
		}
		if want, err := model.ContentHash(file); err != nil || h != want {
			t.Errorf("hash %s, %v; want %s", h, err, want)
		}
		return h
	}
	first := hash()
	m.seen[file] = seenModel{stamp: m.seen[file].stamp, hash: "remembered"}
	if h, _ := m.Hash(file); h != "remembered" {
		t.Error("a file that has not changed is read again")
	}
	write(t, filepath.Join(filepath.Dir(file), "weights.bin"), "w")
	if hash() != first {
		t.Error("the model's content has not changed, its hash has")
	}
	write(t, file, "two, longer")
	if hash() == first {
		t.Error("the model's content has changed, its hash has not")
	}
}

func TestPreparedModelIsRemembered(t *testing.T) {
	file, prepared := filepath.Join(t.TempDir(), "model.onnx"), t.TempDir()
	write(t, file, "one")
	m := &childModels{}
	seen, err := m.look(file)
	if err != nil {
		t.Fatal(err)
	}
	m.keep(file, seen, "", prepared)
	if got, err := m.Prepare(t.Context(), file); err != nil || got != prepared {
		t.Errorf("prepared in %q, %v", got, err)
	}
	write(t, file, "two, longer")
	if seen, _ := m.look(file); seen.ready != "" {
		t.Error("another model counts as prepared")
	}
	m.keep(file, seen, "", prepared) // The model changed while it was prepared.
	if seen, _ := m.look(file); seen.ready != "" {
		t.Error("what was prepared of the earlier model counts for the later")
	}
}

func TestChildrenEndWithTheirContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (&childModels{}).assumed().check(ctx, "model.onnx"); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// The check at deployment, model check, model show and model bundle refuse a file of another
// format in the same words.
func TestForeignFilesAreRefused(t *testing.T) {
	t.Setenv(commandEnv, "1")
	for head, want := range map[string]string{
		"GGUF\x03\x00\x00\x00":                               "llama-cpp-python in requirements.txt",
		"CBM1\x90\x2f\x00\x00":                               "faas-infer model convert FILE model.onnx",
		"\x80\x04\x95\x0a\x00\x00\x00\x00\x00\x00\x00}\x94.": "template python-infer",
	} {
		file := filepath.Join(t.TempDir(), "model.onnx")
		write(t, file, head)
		deployed := (&childModels{}).assumed().check(t.Context(), file)
		_, checked := execute(t, "model", "check", file, "--prepared", t.TempDir())
		_, shown := execute(t, "model", "show", file)
		_, bundled := execute(t, "model", "bundle", file, "--root", t.TempDir(), "--image", "m:latest")
		for what, err := range map[string]error{"deploy": deployed, "check": checked, "show": shown, "bundle": bundled} {
			if err == nil || !strings.Contains(err.Error(), "not an ONNX model: it is") || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", what, err, want)
			}
		}
	}
}

// The error of a child that was killed says by what, not what it printed last.
func TestDeathsOfChildren(t *testing.T) {
	t.Setenv(commandEnv, "1")
	file := filepath.Join(t.TempDir(), "model.onnx")
	write(t, file, "text")
	for signal, want := range map[syscall.Signal]string{
		syscall.SIGSEGV: "SIGSEGV", // Go's runtime may have begun to handle it, and then exits with status 2.
		syscall.SIGKILL: "the process of `instance prepare` was killed by SIGKILL; the kernel does this when the memory limit is reached",
	} {
		m := &childModels{prepared: t.TempDir(), place: func(pid int, _ bool) error { return syscall.Kill(pid, signal) }}
		_, err := m.Prepare(t.Context(), file)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "export it with other operators") {
			t.Errorf("%v: %v", signal, err)
		}
	}
	m := &childModels{prepared: t.TempDir()}
	if _, err := m.Prepare(t.Context(), file); err == nil || errors.Is(err, errDied) || !strings.Contains(err.Error(), "model.onnx") {
		t.Errorf("a file that is no model: %v", err)
	}
}

// Processes that a killed child has started are killed as well, also if this program was killed with the child.
func TestChildrenOfKilledChildren(t *testing.T) {
	t.Setenv(commandEnv, "1")
	t.Setenv("TMPDIR", t.TempDir())
	start := func(temporary string) <-chan error {
		c := exec.Command("sleep", "600")
		c.Env, c.SysProcAttr = append(os.Environ(), "TMPDIR="+temporary), &syscall.SysProcAttr{Setsid: true}
		ended := make(chan error, 1)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		go func() { ended <- c.Wait() }()
		t.Cleanup(func() { _ = c.Process.Kill() })
		return ended
	}
	earlier, err := os.MkdirTemp("", childDir)
	if err != nil {
		t.Fatal(err)
	}
	long := time.Now().Add(-time.Hour)
	if err := os.Chtimes(earlier, long, long); err != nil {
		t.Fatal(err)
	}
	left, other := start(earlier), start(os.TempDir())
	var its <-chan error
	m := &childModels{prepared: t.TempDir(), place: func(pid int, _ bool) error {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		_, after, _ := strings.Cut(string(text), "TMPDIR="+filepath.Join(os.TempDir(), childDir))
		name, _, _ := strings.Cut(after, "\x00")
		its = start(filepath.Join(os.TempDir(), childDir+name))
		return errors.Join(err, syscall.Kill(pid, syscall.SIGKILL))
	}}
	file := filepath.Join(t.TempDir(), "model.onnx")
	write(t, file, "text")
	if _, err := m.Prepare(t.Context(), file); !errors.Is(err, errDied) {
		t.Fatal(err)
	}
	for _, ended := range []<-chan error{left, its} {
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Error("a process is left")
		}
	}
	select {
	case err := <-other:
		t.Errorf("a process of somebody else has ended: %v", err)
	default:
	}
}

func TestUnpredictableModels(t *testing.T) {
	err := asUnpredictable(errors.New("cannot be predicted: node \"loop\" is a Loop"))
	if !errors.Is(err, latency.ErrUnpredictable) || err.Error() != "cannot be predicted: node \"loop\" is a Loop" {
		t.Errorf("error %v", err)
	}
	if err := asUnpredictable(errors.New("killed by signal 9")); errors.Is(err, latency.ErrUnpredictable) {
		t.Errorf("%v counts as subject.Unpredictable", err)
	}
}

func TestBundlesFindModels(t *testing.T) {
	root := t.TempDir()
	m, err := zoo.Make("identity", 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bundle.Write(root, "team/id:v1", bundle.Manifest{}, m); err != nil {
		t.Fatal(err)
	}
	find := func(image, model string) (bundle, file string, err error) {
		f := &provider.Function{Inference: annotation.Inference{Model: model}}
		f.Deployment.Image = image
		bundle, models, err := newRegistrar(bundles(root), t.TempDir(), &childModels{}).Models(t.Context(), f)
		if err != nil || len(models) != 1 {
			return "", "", err
		}
		return bundle, models[0].File, nil
	}
	dir, file, err := find("team/id:v1", "")
	if err != nil || filepath.Dir(file) != dir {
		t.Errorf("the manifest's model: %q in %q, %v", file, dir, err)
	}
	if _, named, err := find("team/id:v1", filepath.Base(file)); err != nil || named != file {
		t.Errorf("the model by name: %q, %v", named, err)
	}
	for _, c := range [][2]string{{"team/id:v2", ""}, {"team/id:v1", "other.onnx"}, {"team/id:v1", "../../../etc/passwd"}, {"../team/id:v1", ""}} {
		if _, _, err := find(c[0], c[1]); err == nil {
			t.Errorf("image %q, model %q: found", c[0], c[1])
		}
	}
}

func TestMakeBundles(t *testing.T) {
	root := t.TempDir()
	var log bytes.Buffer
	functions := []stackFunction{{}, {}}
	functions[0].Image, functions[1].Image = "identity:latest", "somebody/else:1"
	for range 2 { // The second time there is nothing to do.
		if err := makeBundles(functions, root, &log); err != nil {
			t.Fatal(err)
		}
	}
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "identity:latest") {
		t.Errorf("log %q", got)
	}
	if _, err := bundle.Open(root, "identity:latest"); err != nil {
		t.Error(err)
	}
}

func TestProviderFlags(t *testing.T) {
	state := t.TempDir()
	t.Setenv("XDG_STATE_HOME", state)
	good := func() *ProviderFlags {
		return &ProviderFlags{policy: "shared", keepAlive: time.Minute, coldWait: time.Second, drain: time.Second, queueLimit: 1, maxBody: 1, bodyTimeout: time.Second, answerTimeout: time.Second, logLevel: "info"}
	}
	f := good()
	if err := f.complete(); err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(state, "faas-infer"); f.state != want || f.bundles != filepath.Join(want, "bundles") || f.prepared == "" {
		t.Errorf("state %q, bundles %q, prepared %q", f.state, f.bundles, f.prepared)
	}
	f = good()
	f.bundles, f.prepared, f.functionSecrets = "bundles", "prepared", "secrets"
	t.Chdir(t.TempDir())
	if err := f.complete(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{f.bundles, f.prepared, f.functionSecrets} {
		if !filepath.IsAbs(dir) {
			t.Errorf("%q is relative, instances have another working directory", dir)
		}
	}
	blocked := filepath.Join(t.TempDir(), "file")
	write(t, blocked, "")
	for want, change := range map[string]func(*ProviderFlags){
		"--keep-alive":                 func(f *ProviderFlags) { f.keepAlive = -1 },
		"--cold-wait":                  func(f *ProviderFlags) { f.coldWait = -1 },
		"--drain":                      func(f *ProviderFlags) { f.drain = -1 },
		"--queue-limit":                func(f *ProviderFlags) { f.queueLimit = 0 },
		"--max-body":                   func(f *ProviderFlags) { f.maxBody = 0 },
		"--body-timeout":               func(f *ProviderFlags) { f.bodyTimeout = 0 },
		"--max-held":                   func(f *ProviderFlags) { f.maxBody, f.maxHeld = 10, 9 },
		"one-to-one, infless":          func(f *ProviderFlags) { f.policy = "best" },
		"--bundles":                    func(f *ProviderFlags) { f.bundles = filepath.Join(blocked, "below") },
		"basic-auth-user":              func(f *ProviderFlags) { f.secrets = state },
		"it must be debug, info, warn": func(f *ProviderFlags) { f.logLevel = "loud" },
		"--listen":                     func(f *ProviderFlags) { f.listen = "nowhere:at:all" },
	} {
		f := good()
		change(f)
		if _, err := f.start(t.Context(), machine{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one that says %q", err, want)
		}
	}
}

// A known model is not checked again.
func TestKnownModelsAreNotChecked(t *testing.T) {
	file := filepath.Join(t.TempDir(), "model.onnx")
	if err := os.WriteFile(file, []byte("no model"), 0o600); err != nil {
		t.Fatal(err)
	}
	m := &childModels{}
	asked := ""
	err := m.Check(t.Context(), file, func(hash string) bool { asked = hash; return true })
	if hash, _ := m.Hash(file); err != nil || asked == "" || asked != hash {
		t.Errorf("asked for %q, %v; the hash is %q", asked, err, hash)
	}
}
