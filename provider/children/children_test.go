package children

import (
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

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/zoo"
	"github.com/faas-infer/faas-infer/provider/latency"
)

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// pythonBundle is a bundle whose handler doubles numbers.
func pythonBundle(t *testing.T, handler string) (manifest string) {
	t.Helper()
	manifest = filepath.Join(t.TempDir(), "double", bundle.ManifestFile)
	if err := os.Mkdir(filepath.Dir(manifest), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, manifest, "name: double\nengine: python\nhandler: handler.py\n")
	write(t, filepath.Join(filepath.Dir(manifest), "handler.py"), handler)
	return manifest
}

const doubling = `
inputs = {"x": ("float32", [3])}
def handle(batch): return [{"y": 2 * r["x"]} for r in batch]
`

// A model file is read again when it, or a file of weights beside it, has
// changed, and only then.
func TestModelHashIsRemembered(t *testing.T) {
	file := filepath.Join(t.TempDir(), "model.onnx")
	m := &Models{}
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
	m := &Models{}
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
	if err := (&Models{}).CheckFile(ctx, "model.onnx"); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// The error of a child that was killed says by what, not what it printed last.
func TestDeathsOfChildren(t *testing.T) {
	file := filepath.Join(t.TempDir(), "model.onnx")
	write(t, file, "text")
	for signal, want := range map[syscall.Signal]string{
		syscall.SIGSEGV: "SIGSEGV", // Go's runtime may have begun to handle it, and then exits with status 2.
		syscall.SIGKILL: "the process of `instance prepare` was killed by SIGKILL; the kernel does this when the memory limit is reached",
	} {
		m := &Models{Config: Config{Prepared: t.TempDir(), Place: func(pid int, _ bool) error { return syscall.Kill(pid, signal) }}}
		_, err := m.Prepare(t.Context(), file)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "export it with other operators") {
			t.Errorf("%v: %v", signal, err)
		}
	}
	m := &Models{Config: Config{Prepared: t.TempDir()}}
	if _, err := m.Prepare(t.Context(), file); err == nil || errors.Is(err, errDied) || !strings.Contains(err.Error(), "model.onnx") {
		t.Errorf("a file that is no model: %v", err)
	}
}

// Processes that a killed child has started are killed as well, also if this program was killed with the child.
func TestChildrenOfKilledChildren(t *testing.T) {
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
	m := &Models{Config: Config{Prepared: t.TempDir(), Place: func(pid int, _ bool) error {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		_, after, _ := strings.Cut(string(text), "TMPDIR="+filepath.Join(os.TempDir(), childDir))
		name, _, _ := strings.Cut(after, "\x00")
		its = start(filepath.Join(os.TempDir(), childDir+name))
		return errors.Join(err, syscall.Kill(pid, syscall.SIGKILL))
	}}}
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

// A known model is not checked again.
func TestKnownModelsAreNotChecked(t *testing.T) {
	file := filepath.Join(t.TempDir(), "model.onnx")
	if err := os.WriteFile(file, []byte("no model"), 0o600); err != nil {
		t.Fatal(err)
	}
	m := &Models{}
	asked := ""
	err := m.Check(t.Context(), file, func(hash string) bool { asked = hash; return true })
	if hash, _ := m.Hash(file); err != nil || asked == "" || asked != hash {
		t.Errorf("asked for %q, %v; the hash is %q", asked, err, hash)
	}
}

// Weights count wherever they are, and other files of a bundle do not.
func TestWeightsOf(t *testing.T) {
	m, err := zoo.Make("identity", 1)
	if err != nil {
		t.Fatal(err)
	}
	p := proto.Clone(m.Proto()).(*onnxpb.ModelProto)
	p.Graph.Initializer = []*onnxpb.TensorProto{{
		Name: proto.String("w"), Dims: []int64{1 << 18}, DataType: proto.Int32(1), DataLocation: onnxpb.TensorProto_EXTERNAL.Enum(),
		ExternalData: []*onnxpb.StringStringEntryProto{{Key: proto.String("location"), Value: proto.String("sub/w.bin")}},
	}}
	text, err := proto.Marshal(p)
	dir := t.TempDir()
	file := filepath.Join(dir, "model.onnx")
	if err := errors.Join(err, os.Mkdir(filepath.Join(dir, "sub"), 0o755), os.WriteFile(file, text, 0o644),
		os.WriteFile(filepath.Join(dir, "sub", "w.bin"), make([]byte, 1<<20), 0o644), os.WriteFile(filepath.Join(dir, "labels"), make([]byte, 1<<20), 0o644)); err != nil {
		t.Fatal(err)
	}
	if got, want := Weights(file), int64(len(text))+1<<20; got != want {
		t.Errorf("%d bytes, want %d", got, want)
	}
	if got := Weights(filepath.Join(dir, "absent.onnx")); got != 0 {
		t.Errorf("a file that is not there has %d bytes", got)
	}
}

// A deployment does not wait longer for its model's turn than for the model itself: two hostile ones in front
// would make it wait as long as both take.
func TestTheTurnOfACheckIsBounded(t *testing.T) {
	for range cap(checking) {
		checking <- struct{}{}
	}
	t.Cleanup(func() {
		for range cap(checking) {
			<-checking
		}
	})
	file := writeGraph(t, `node { op_type: "Identity" input: "x" output: "y" }`)
	m := New(Config{Prepared: t.TempDir()}).assumed()
	if err := m.try(t.Context(), file, time.Millisecond); err != nil {
		t.Errorf("a model whose turn did not come is refused: %v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.try(gone, file, tryTime); !errors.Is(err, context.Canceled) {
		t.Errorf("the check of a client that left ends with %v", err)
	}
}
