package onnxruntime

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/model/zoo"
)

// TestMain loads the library; without it nothing here can be tested.
func TestMain(m *testing.M) {
	if err := Load(""); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// zooFile writes a model of the zoo to a file.
func zooFile(t testing.TB, name string) string {
	t.Helper()
	m, err := zoo.Make(name, 1)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name+".onnx")
	if err := m.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	return path
}

func mustOpen(t testing.TB, o Options) *Engine {
	t.Helper()
	if o.Threads == 0 {
		o.Threads = 1
	}
	e, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func floats(name string, shape []int64, of ...float32) tensor.Tensor {
	x := tensor.Tensor{Name: name, Type: tensor.FP32, Shape: shape}
	for _, f := range of {
		x.Data = binary.LittleEndian.AppendUint32(x.Data, math.Float32bits(f))
	}
	return x
}

// TestRunGivesOutputsOfOpenShapes: identity leaves its second dimension open,
// so that ONNX Runtime allocates the output.
func TestRunGivesOutputsOfOpenShapes(t *testing.T) {
	e := mustOpen(t, Options{Model: zooFile(t, "identity")})
	x := floats(e.Inputs()[0].Name, []int64{2, 3}, 1, 2, 3, 4, 5, 6)
	for range 3 {
		out, err := e.Run(context.Background(), 2, []tensor.Tensor{x})
		if err != nil {
			t.Fatal(err)
		}
		if len(out) != 1 || out[0].Name != e.Outputs()[0].Name || string(out[0].Data) != string(x.Data) || out[0].Shape[1] != 3 {
			t.Errorf("got %+v", out)
		}
	}
	if e.LoadTime() <= 0 || LibraryTime() <= 0 || Version() == "" {
		t.Errorf("load %v, library %v, version %q", e.LoadTime(), LibraryTime(), Version())
	}
}

// TestRunTakesDataAtAnyAddress: binary tensors lie where the JSON part ends.
func TestRunTakesDataAtAnyAddress(t *testing.T) {
	e := mustOpen(t, Options{Model: zooFile(t, "mnist")})
	x := e.signature.sample(2)
	want, err := e.Run(context.Background(), 2, x)
	if err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, len(x[0].Data)+8)
	for offset := range 5 {
		moved := buffer[offset : offset+len(x[0].Data)]
		copy(moved, x[0].Data)
		got, err := e.Run(context.Background(), 2, []tensor.Tensor{{Name: x[0].Name, Type: x[0].Type, Shape: x[0].Shape, Data: moved}})
		if err != nil || same(want, got) != nil {
			t.Errorf("at %x: %v, %v", unsafe.SliceData(moved), err, same(want, got))
		}
	}
}

// TestRowsAreIndependent: a row's answer does not depend on its batch, which
// is what makes batching safe.
func TestRowsAreIndependent(t *testing.T) {
	e := mustOpen(t, Options{Model: zooFile(t, "mnist"), Threads: 2})
	x := e.signature.sample(5)
	together, err := e.Run(context.Background(), 5, x)
	if err != nil {
		t.Fatal(err)
	}
	in, out := len(x[0].Data)/5, len(together[0].Data)/5
	for row := range 5 {
		shape := append([]int64{1}, x[0].Shape[1:]...)
		one := tensor.Tensor{Name: x[0].Name, Type: x[0].Type, Shape: shape, Data: x[0].Data[row*in : (row+1)*in]}
		alone, err := e.Run(context.Background(), 1, []tensor.Tensor{one})
		if err != nil {
			t.Fatal(err)
		}
		want := together[0]
		want.Data = want.Data[row*out : (row+1)*out]
		if err := same([]tensor.Tensor{want}, alone); err != nil {
			t.Errorf("row %d: %v", row, err)
		}
	}
}

func TestRunIsSafeForConcurrentUse(t *testing.T) {
	e := mustOpen(t, Options{Model: zooFile(t, "identity")})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			x := floats("x", []int64{1, 1}, float32(i))
			for range 50 {
				out, err := e.Run(context.Background(), 1, []tensor.Tensor{x})
				if err != nil || string(out[0].Data) != string(x.Data) {
					t.Errorf("%d: got %v, %v", i, out, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestRunRefusesWrongInputs(t *testing.T) {
	e := mustOpen(t, Options{Model: zooFile(t, "mnist")})
	good := e.signature.sample(2)[0]
	with := func(change func(*tensor.Tensor)) []tensor.Tensor {
		x := good
		change(&x)
		return []tensor.Tensor{x}
	}
	for wrong, inputs := range map[string][]tensor.Tensor{
		"0 inputs for a model with 1":     {},
		"the batch has 2 rows of FP32":    with(func(x *tensor.Tensor) { x.Type = tensor.FP64 }),
		"which takes 6272":                with(func(x *tensor.Tensor) { x.Data = x.Data[:8] }),
		"not take inputs of these shapes": with(func(x *tensor.Tensor) { x.Shape = []int64{2, 1, 14, 56} }),
		"negative":                        with(func(x *tensor.Tensor) { x.Shape = []int64{2, -1, 28, 28} }),
	} {
		if _, err := e.Run(context.Background(), 2, inputs); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("got %v, want %q", err, wrong)
		}
	}
	if _, err := e.Run(context.Background(), 2, []tensor.Tensor{good}); err != nil {
		t.Errorf("a good batch after bad ones: %v", err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if _, err := e.Run(context.Background(), 2, []tensor.Tensor{good}); err == nil {
		t.Error("a closed model ran")
	}
}

// TestRunIsGivenUp checks that a cancelled run stops and the next one works.
func TestRunIsGivenUp(t *testing.T) {
	e := mustOpen(t, Options{Model: zooFile(t, "mnist")})
	const rows = 8192 // Takes about a second.
	x := e.signature.sample(rows)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := e.Run(ctx, rows, x); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if _, err := e.Run(ctx, 1, e.signature.sample(1)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after the deadline: got %v", err)
	}
	if _, err := e.Run(context.Background(), 1, e.signature.sample(1)); err != nil {
		t.Errorf("the next run: %v", err)
	}
}

// TestDenormalsAreBackAfterwards checks that Go's own arithmetic on the thread keeps
// denormal numbers.
func TestDenormalsAreBackAfterwards(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		return // Nothing is set there.
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	e := mustOpen(t, Options{Model: zooFile(t, "identity")})
	tiny := floats("x", []int64{1, 1}, math.SmallestNonzeroFloat32)
	if _, err := e.Run(context.Background(), 1, []tensor.Tensor{tiny}); err != nil {
		t.Fatal(err)
	}
	if got := halved(denormal); got == 0 {
		t.Error("a denormal number is zero after a run")
	}
	before := flushDenormals()
	flushed := halved(denormal)
	restoreDenormals(before)
	if flushed != 0 || halved(denormal) == 0 {
		t.Errorf("half of a denormal is %g flushed, %g not", flushed, halved(denormal))
	}
}

var denormal = 0x1p-1060

// halved is not inlined, so the division happens at run time.
//
//go:noinline
func halved(x float64) float64 { return x / 2 }

func TestErrorsAreInPlainWords(t *testing.T) {
	err := fmt.Errorf("Error running network: %w", errors.New("Status Message: /onnxruntime_src/onnxruntime/core/framework/bfc_arena.cc:360 "+
		"void* onnxruntime::BFCArena::AllocateRawInternal(size_t, bool) Available memory of 5\nis smaller than 6"))
	if got, want := plain(err).Error(), "ONNX Runtime: Status Message: Available memory of 5 is smaller than 6"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if plain(nil) != nil {
		t.Error("no error became one")
	}
}

func TestLoadWithoutALibrary(t *testing.T) {
	t.Setenv(LibraryEnv, "")
	t.Setenv("XDG_CACHE_HOME", "/cache")
	if got, err := LibraryPath(); err != nil || got != "/cache/faas-infer/onnxruntime/"+LibraryVersion+"/libonnxruntime.so" {
		t.Errorf("got %q, %v", got, err)
	}
	library.Lock()
	library.loaded = false
	library.Unlock()
	defer func() { library.loaded = true }()
	if err := Load("/none.so"); !errors.Is(err, ErrNoLibrary) || !strings.Contains(err.Error(), "faas-infer setup") {
		t.Errorf("got %v", err)
	}
}

func BenchmarkRunIdentity(b *testing.B) {
	e := mustOpen(b, Options{Model: zooFile(b, "identity")})
	x := []tensor.Tensor{floats("x", []int64{1, 16}, make([]float32, 16)...)}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := e.Run(ctx, 1, x); err != nil {
			b.Fatal(err)
		}
	}
}
