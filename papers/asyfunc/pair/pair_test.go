package pair

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/model/zoo"
	"github.com/faas-infer/faas-infer/papers/asyfunc/relay"
)

func TestMain(m *testing.M) {
	if err := onnxruntime.Load(""); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		prepared.Range(func(_, once any) bool {
			dir, _ := once.(func() (string, error))()
			os.RemoveAll(filepath.Dir(dir))
			return true
		})
		os.Exit(code)
	}))
}

var prepared sync.Map

// preparedDir prepares a model of the zoo once.
func preparedDir(t testing.TB, name string) string {
	t.Helper()
	once, _ := prepared.LoadOrStore(name, sync.OnceValues(func() (string, error) {
		m, err := zoo.Make(name, 1)
		if err != nil {
			return "", err
		}
		dir, err := os.MkdirTemp("", "pair-test-")
		if err != nil {
			return "", err
		}
		file := filepath.Join(dir, "model.onnx")
		if err := m.WriteFile(file); err != nil {
			return "", err
		}
		p, err := onnxruntime.Prepare(file, dir, onnxruntime.PrepareOptions{})
		return p.Dir, err
	}))
	dir, err := once.(func() (string, error))()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func body(t testing.TB, model string) *Body {
	t.Helper()
	b, err := OpenBody(preparedDir(t, model), Options{Threads: 1, Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// handled changes what a shadow does with a job.
type handled struct {
	*Shadow
	before func(ctx context.Context) error
}

func (h handled) Run(ctx context.Context, segment, rows int, inputs []tensor.Tensor, into [][]byte) error {
	if h.before != nil {
		if err := h.before(ctx); err != nil {
			return err
		}
	}
	return h.Shadow.Run(ctx, segment, rows, inputs, into)
}

// served is a shadow in this process.
type served struct {
	Address
	stop func()
}

func shadowAt(t testing.TB, model, phi, network string, before func(ctx context.Context) error) served {
	t.Helper()
	at := filepath.Join(t.TempDir(), "s")
	if network == "tcp" {
		at = "127.0.0.1:0"
	}
	return again(t, model, phi, Address{network, at}, before)
}

func again(t testing.TB, model, phi string, at Address, before func(ctx context.Context) error) served {
	t.Helper()
	runs, err := ParsePhi(phi)
	if err != nil {
		t.Fatal(err)
	}
	s, err := OpenShadow(preparedDir(t, model), runs, Options{Threads: 1, MaxRows: 8, Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen(at.Network, at.Address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- relay.Serve(ctx, l, s.identity, handled{s, before}, zerolog.Nop()) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-ended, s.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return served{Address{at.Network, l.Addr().String()}, stop}
}

// connect waits until all shadows of a body are connected.
func connect(t testing.TB, b *Body) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !strings.HasPrefix(strings.Join(b.Status().states(), ","), strings.TrimSuffix(strings.Repeat("connected,", len(b.Status().Shadows)), ",")) {
		if time.Now().After(deadline) {
			t.Fatalf("%+v", b.Status())
		}
		time.Sleep(time.Millisecond)
	}
}

func (s Status) states() (out []string) {
	for _, o := range s.Shadows {
		out = append(out, o.State)
	}
	return out
}

// check runs batches and compares them with the whole model's.
func check(t testing.TB, b *Body, rows int, seed uint64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	var inputs []tensor.Tensor
	for _, in := range b.Inputs() {
		shape := append([]int64{int64(rows)}, in.Shape[1:]...)
		n, err := tensor.Elements(shape)
		if err != nil {
			t.Fatal(err)
		}
		data := make([]byte, n*int64(in.Type.Size()))
		for i := 0; i < len(data); i += in.Type.Size() {
			if in.Type == tensor.FP32 {
				copy(data[i:], []byte{byte(rng.Uint32()), byte(rng.Uint32()), byte(rng.Uint32() & 127), 63})
			} else {
				data[i] = byte(rng.IntN(2))
			}
		}
		inputs = append(inputs, tensor.Tensor{Name: in.Name, Type: in.Type, Shape: shape, Data: data})
	}
	want, err := b.whole.Run(context.Background(), rows, inputs)
	if err != nil {
		t.Fatal(err)
	}
	got, err := b.Run(context.Background(), rows, inputs)
	if err != nil {
		t.Fatal(err)
	}
	for i := range want {
		if !bytes.Equal(want[i].Data, got[i].Data) || fmt.Sprint(want[i].Shape, want[i].Name) != fmt.Sprint(got[i].Shape, got[i].Name) {
			t.Errorf("%d rows: %q is not the whole model's: %v, %v", rows, want[i].Name, got[i].Shape, want[i].Shape)
		}
	}
}

func rowsBy(b *Body, by string) float64 {
	return testutil.ToFloat64(b.metrics.rows.WithLabelValues(by))
}

func fallbacks(b *Body, reason string) float64 {
	return testutil.ToFloat64(b.metrics.fallbacks.WithLabelValues(reason))
}

// A pair's answers are the whole model's to the last bit, wherever Φ is, with any batch, on both
// networks, with one shadow and with two, in both ways.
func TestAnswersAsTheWhole(t *testing.T) {
	for _, test := range []struct{ model, phi, network string }{
		{"resnet-20", "0:6", "unix"}, {"resnet-20", "3:9", "unix"}, {"resnet-20", "1:3,5:9", "tcp"}, {"resnet-20", "6:END", "unix"},
		{"bert-small", "1:4", "unix"}, {"textcnn-69", "0:END", "unix"},
	} {
		for _, synchronous := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s %s %s %v", test.model, test.phi, test.network, synchronous), func(t *testing.T) {
				b := body(t, test.model)
				phi := strings.ReplaceAll(test.phi, "END", fmt.Sprint(b.segments.Blocks()))
				shadows := []Address{shadowAt(t, test.model, phi, test.network, nil).Address}
				if test.network == "unix" {
					shadows = append(shadows, shadowAt(t, test.model, phi, test.network, nil).Address)
				}
				if err := b.Set(Order{Phi: phi, Shadows: shadows, Synchronous: synchronous}); err != nil {
					t.Fatal(err)
				}
				connect(t, b)
				for rows := 1; rows <= 5; rows++ {
					check(t, b, rows, uint64(rows))
				}
				var both sync.WaitGroup
				for k := range uint64(3) {
					both.Go(func() {
						for i := range uint64(2) {
							check(t, b, 3+int(i), 10*k+i)
						}
					})
				}
				both.Wait()
				if rowsBy(b, "shadow") == 0 {
					t.Error("the shadows computed nothing")
				}
				status := b.Status()
				relayed := status.Counted.Relayed
				if last := len(relayed.Buckets) - 1; status.Counted.Rows != rowsBy(b, "shadow") || status.Weights <= 0 || relayed.Count == 0 || relayed.Buckets[last].Count > relayed.Count {
					t.Errorf("the body says %+v", status)
				}
				if err := b.Set(Order{}); err != nil {
					t.Fatal(err)
				}
				check(t, b, 3, 99)
			})
		}
	}
}

// A shadow that hangs, fails, goes away mid-batch, or comes back loses and changes no answer.
func TestShadowFails(t *testing.T) {
	const model, phi = "resnet-20", "0:6"
	var jobs atomic.Int64
	for name, test := range map[string]struct {
		before func(ctx context.Context) error
		reason string
	}{
		"hangs": {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, "late"},
		"hangs now and then": {func(ctx context.Context) error {
			if jobs.Add(1)%3 == 0 {
				<-ctx.Done()
			}
			return nil
		}, "late"},
		"fails": {func(context.Context) error { return errors.New("no memory") }, "error"},
	} {
		t.Run(name, func(t *testing.T) {
			b := body(t, model)
			at := shadowAt(t, model, phi, "unix", test.before).Address
			if err := b.Set(Order{Phi: phi, Shadows: []Address{at}}); err != nil {
				t.Fatal(err)
			}
			check(t, b, 4, 1) // The body's speed is then known.
			connect(t, b)
			for i := range uint64(4) {
				var both sync.WaitGroup
				for k := range uint64(2) {
					both.Go(func() { check(t, b, 4, 10*k+i) })
				}
				both.Wait()
			}
			if fallbacks(b, test.reason) == 0 {
				t.Error("no job fell back")
			}
			for i := range uint64(20) {
				if s := b.Status(); name != "hangs" || s.Useless(at) {
					return
				}
				check(t, b, 4, 100+i)
			}
			t.Errorf("it counts as of use: %+v", b.Status())
		})
	}
	t.Run("is killed and comes back", func(t *testing.T) {
		b := body(t, model)
		began := make(chan struct{}, 100)
		hold := func(ctx context.Context) error {
			began <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		}
		s := shadowAt(t, model, phi, "unix", hold)
		if err := b.Set(Order{Phi: phi, Shadows: []Address{s.Address}}); err != nil {
			t.Fatal(err)
		}
		connect(t, b)
		var work sync.WaitGroup
		work.Go(func() { check(t, b, 6, 2) })
		<-began
		s.stop()
		work.Wait()
		if fallbacks(b, "lost") != 1 {
			t.Errorf("%g jobs were lost", fallbacks(b, "lost"))
		}
		check(t, b, 6, 3)
		before := rowsBy(b, "shadow")
		again(t, model, phi, s.Address, nil)
		connect(t, b)
		check(t, b, 6, 4)
		if rowsBy(b, "shadow") == before {
			t.Error("the shadow that came back computes nothing")
		}
	})
}

// A shadow of another Φ or another model is refused, and the body serves alone.
func TestRefused(t *testing.T) {
	b := body(t, "resnet-20")
	for _, s := range []served{shadowAt(t, "resnet-20", "0:5", "unix", nil), shadowAt(t, "mnist", "0:1", "unix", nil)} {
		if err := b.Set(Order{Phi: "0:6", Shadows: []Address{s.Address}}); err != nil {
			t.Fatal(err)
		}
		deadline := time.Now().Add(time.Minute)
		for !strings.Contains(strings.Join(b.Status().states(), ""), "does not fit") {
			if time.Now().After(deadline) {
				t.Fatalf("%+v", b.Status())
			}
			time.Sleep(time.Millisecond)
		}
		if status := b.Status(); !status.Useless(s.Address) {
			t.Errorf("a refused shadow counts as of use: %+v", status)
		}
		check(t, b, 3, 5)
	}
	for want, o := range map[string]Order{
		"phi is": {Phi: "3:2", Shadows: []Address{{"unix", "/x"}}}, "the model has": {Phi: "0:999", Shadows: []Address{{"unix", "/x"}}},
		"the network must be": {Phi: "0:2", Shadows: []Address{{"udp", "x"}}}, "given twice": {Phi: "0:2", Shadows: []Address{{"unix", "/x"}, {"unix", "/x"}}},
	} {
		if err := b.Set(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// A provider that takes a body over tells it its shadows again. That neither opens segments nor
// connects.
func TestTheSameOrderAgain(t *testing.T) {
	b := body(t, "mnist")
	s := shadowAt(t, "mnist", "0:2", "unix", nil)
	o := Order{Phi: "0:2", Shadows: []Address{s.Address}}
	if err := b.Set(o); err != nil {
		t.Fatal(err)
	}
	before := b.now
	if err := b.Set(o); err != nil || b.now != before {
		t.Errorf("the pairing was made anew: %v", err)
	}
	o.Synchronous = true
	if err := b.Set(o); err != nil || b.now == before {
		t.Errorf("another order changed nothing: %v", err)
	}
}
