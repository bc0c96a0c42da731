package relay

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/instance/mutual"
	"github.com/faas-infer/faas-infer/model/tensor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo gives each input back as the output of the same number.
type echo struct {
	hold chan struct{} // if not nil, jobs wait for it or for the end of their context
	ran  chan error
	deaf bool // jobs go on after their context ends
}

func (e echo) Run(ctx context.Context, segment, rows int, inputs []tensor.Tensor, into [][]byte) error {
	if e.deaf {
		<-e.hold
		<-ctx.Done()
		e.ran <- ctx.Err()
		return nil
	}
	if e.hold != nil {
		select {
		case <-e.hold:
		case <-ctx.Done():
			if e.ran != nil {
				e.ran <- ctx.Err()
			}
			return ctx.Err()
		}
	}
	if segment == 9 {
		return errors.New("no segment 9")
	}
	for i := range into {
		copy(into[i], inputs[i].Data)
	}
	return nil
}

var fits = Identity{Model: "m", Engine: "1", CPU: "c", Part: "p"}

// plain connects without TLS.
var plain = (*mutual.Identity)(nil).Dial

// served serves a handler and returns its address.
func served(t testing.TB, network string, mine Identity, h Handler) (address string) {
	t.Helper()
	address = "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "s")
	}
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	return servedAt(t, l, mine, h)
}

// servedAt serves a handler at a listener and returns its address.
func servedAt(t testing.TB, l net.Listener, mine Identity, h Handler) (address string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, l, mine, h, zerolog.Nop()) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func dialled(t testing.TB, network, address string) *Peer {
	t.Helper()
	p, err := Dial(context.Background(), plain, network, address, fits)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func floats(values ...float32) []byte {
	var b bytes.Buffer
	_ = binary.Write(&b, binary.LittleEndian, values)
	return b.Bytes()
}

func jobOf(data, into []byte) Job {
	in := tensor.Tensor{Type: tensor.FP32, Shape: []int64{2, int64(len(data) / 8)}, Data: data}
	return Job{Rows: 2, Within: 10 * time.Second, Inputs: []tensor.Tensor{in}, Into: [][]byte{into}}
}

// A job's tensors come back on both networks, from shared memory and beside it, and the memory
// may grow and be replaced.
func TestJobs(t *testing.T) {
	for _, network := range []string{"unix", "tcp"} {
		t.Run(network, func(t *testing.T) {
			mine := fits
			mine.MaxRows = 4
			p := dialled(t, network, served(t, network, mine, echo{}))
			if p.MaxRows() != 4 || p.Shares() != (network == "unix") {
				t.Errorf("%d rows, shares %v", p.MaxRows(), p.Shares())
			}
			for _, size := range []int{8, 4096, 3 << 20} {
				m, err := NewMemory()
				if err != nil {
					t.Fatal(err)
				}
				data := bytes.Repeat(floats(float32(size), 2), size/8)
				part, err := m.Lend(int64(2 * size))
				if err != nil {
					t.Fatal(err)
				}
				copy(part.Data(), data)
				for _, j := range []Job{jobOf(data, make([]byte, size)), jobOf(part.Data()[:size], part.Data()[size:]), jobOf(part.Data()[:size], make([]byte, size))} {
					j.Memory = m
					if _, err := p.Run(t.Context(), j); err != nil {
						t.Fatal(err)
					}
					if !bytes.Equal(j.Into[0], data) {
						t.Errorf("%d bytes came back changed", size)
					}
					clear(part.Data()[size:])
				}
				m.Free(part)
				if err := errors.Join(m.Retire(), m.Retire()); err != nil {
					t.Error(err)
				}
			}
			if _, err := p.Run(t.Context(), Job{Segment: 9, Rows: 1, Within: time.Second}); err == nil || !strings.Contains(err.Error(), "no segment 9") {
				t.Errorf("%v", err)
			}
			if _, err := p.Run(t.Context(), jobOf(floats(1, 2), make([]byte, 8))); err != nil {
				t.Errorf("after a job that failed: %v", err)
			}
		})
	}
}

// Another job retires the memory before a job is sent, or meanwhile. The job's tensors then go with the
// message, and the connection stays.
func TestRetiredMemory(t *testing.T) {
	p := dialled(t, "unix", served(t, "unix", fits, echo{}))
	for i := range 50 {
		m, err := NewMemory()
		if err != nil {
			t.Fatal(err)
		}
		part, err := m.Lend(128)
		if err != nil {
			t.Fatal(err)
		}
		data, into := part.Data()[:8], part.Data()[64:72]
		copy(data, floats(float32(i), 2))
		j := jobOf(data, into)
		j.Memory = m
		var retiring sync.WaitGroup
		if retiring.Go(func() { _ = m.Retire() }); i%2 == 0 {
			retiring.Wait()
		}
		if _, err := p.Run(t.Context(), j); err != nil || !bytes.Equal(into, data) {
			t.Fatalf("job %d: %v, %v", i, into, err)
		}
		retiring.Wait()
		m.Free(part)
	}
}

// A shadow or a body of another model, engine, CPU or part is refused by both.
func TestRefused(t *testing.T) {
	for _, change := range []func(*Identity){
		func(i *Identity) { i.Model = "x" }, func(i *Identity) { i.Engine = "x" }, func(i *Identity) { i.CPU = "x" }, func(i *Identity) { i.Part = "x" },
	} {
		other := fits
		change(&other)
		_, err := Dial(t.Context(), plain, "unix", served(t, "unix", other, echo{}), fits)
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), `"x"`) {
			t.Errorf("%+v: %v", other, err)
		}
		if !errors.Is(fits.Differs(other), ErrRefused) {
			t.Errorf("%+v fits", other)
		}
	}
}

// A job that takes too long ends the connection and no other answer comes; its context ends on
// the other side.
func TestLate(t *testing.T) {
	for _, network := range []string{"unix", "tcp"} {
		h := echo{hold: make(chan struct{}), ran: make(chan error, 1), deaf: true}
		p := dialled(t, network, served(t, network, fits, h))
		j := jobOf(floats(1, 2), make([]byte, 8))
		j.Within = 30 * time.Millisecond
		if _, err := p.Run(t.Context(), j); !errors.Is(err, ErrLate) {
			t.Errorf("%v", err)
		}
		if _, err := p.Run(t.Context(), j); !errors.Is(err, ErrLate) {
			t.Errorf("the next job: %v", err)
		}
		<-p.Ended()
		close(h.hold)
		if err := <-h.ran; err == nil {
			t.Error("the shadow's job has not ended")
		}
	}
}

// A shadow that goes away fails the jobs it has, at once.
func TestLost(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	got := make(chan struct{})
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = read(conn)
		_, _ = conn.Write(message{kind: hello, body: fits.encode()}.append(nil))
		_, _ = read(conn)
		conn.Close()
		close(got)
	}()
	p := dialled(t, "unix", l.Addr().String())
	if _, err := p.Run(t.Context(), jobOf(floats(1, 2), make([]byte, 8))); !errors.Is(err, ErrLost) {
		t.Errorf("%v", err)
	}
	<-got
}

// A shadow that takes connections and says nothing, as one that is stopped, is given up.
func TestSilent(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := Dial(ctx, plain, "unix", l.Addr().String(), fits); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

// A job that nobody needs is dropped on the other side, and the connection goes on.
func TestDropped(t *testing.T) {
	h := echo{hold: make(chan struct{}), ran: make(chan error, 1)}
	p := dialled(t, "unix", served(t, "unix", fits, h))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Run(ctx, jobOf(floats(1, 2), make([]byte, 8))); err == nil || errors.Is(err, ErrLost) {
		t.Errorf("%v", err)
	}
	close(h.hold)
	if _, err := p.Run(t.Context(), jobOf(floats(1, 2), make([]byte, 8))); err != nil {
		t.Error(err)
	}
}

// What is no message of this version ends the connection; a tensor outside the memory, too.
func TestBadMessages(t *testing.T) {
	good := order{id: 1, rows: 2, within: time.Second, inputs: []placed{{typ: tensor.FP32, shape: []int64{2, 2}, at: inline, size: 16}}}
	for name, b := range map[string][]byte{
		"another protocol": []byte("GET / HTTP/1.1\r\n\r\n123456"),
		"another version":  append([]byte("FIRL\x09\x00"), make([]byte, 18)...),
		"no memory":        message{kind: run, body: order{rows: 2, memory: 3, inputs: []placed{{typ: tensor.FP32, shape: []int64{2, 2}, at: 64, size: 16}}}.encode()}.append(nil),
		"no descriptor":    message{kind: memory, body: order{memory: 4, rows: 1}.encode()}.append(nil),
		"no data":          message{kind: run, body: good.encode()}.append(nil),
		"an answer":        message{kind: done, body: report{}.encode()}.append(nil),
	} {
		conn, err := net.Dial("unix", served(t, "unix", fits, echo{}))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(message{kind: hello, body: fits.encode()}.append(nil)); err != nil {
			t.Fatal(err)
		}
		if m, err := read(conn); err != nil || m.kind != hello {
			t.Fatal(m, err)
		}
		if _, err := conn.Write(b); err != nil {
			t.Fatal(err)
		}
		if _, err := read(conn); err == nil {
			t.Errorf("%s: it is answered", name)
		}
		conn.Close()
	}
}

func FuzzRead(f *testing.F) {
	o := order{id: 7, segment: 1, rows: 2, within: time.Second, memory: 3, inputs: []placed{{typ: tensor.FP32, shape: []int64{2, 2}, at: 64, size: 16}, {typ: tensor.Int64, shape: []int64{2}, at: inline, size: 16}}, outputs: []placed{{at: 128, size: 8}}}
	f.Add(append(message{kind: run, body: o.encode(), data: 16}.append(nil), make([]byte, 16)...))
	r := report{id: 7, computed: time.Second, outputs: []placed{{at: 128, size: 8}}}
	f.Add(message{kind: done, body: r.encode()}.append(nil))
	f.Add(message{kind: hello, body: fits.encode()}.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := read(bytes.NewReader(b))
		if err != nil {
			return
		}
		if len(m.body) > maxBody || m.data > maxData {
			t.Fatalf("%d and %d bytes", len(m.body), m.data)
		}
		switch m.kind {
		case run:
			if o, err := decodeOrder(m); err == nil {
				if again, err := decodeOrder(message{kind: run, body: o.encode(), data: m.data}); err != nil || again.id != o.id || len(again.inputs) != len(o.inputs) {
					t.Fatalf("%+v is read again as %+v, %v", o, again, err)
				}
				for _, p := range o.inputs {
					if n, err := tensor.Elements(p.shape); err != nil || uint64(n)*uint64(p.typ.Size()) != p.size || p.size > maxData {
						t.Fatalf("%+v", p)
					}
				}
			}
		case done:
			if r, err := decodeReport(m); err == nil && inlined(r.outputs) != m.data {
				t.Fatalf("%+v with %d bytes", r, m.data)
			}
		case hello:
			_, _ = decodeIdentity(m.body)
		}
	})
}

// Reading a message never takes more than its parts.
func TestReadLeavesTheRest(t *testing.T) {
	b := message{kind: hello, body: []byte("{}")}.append(nil)
	in := bytes.NewReader(append(slices.Clone(b), "rest"...))
	if _, err := read(in); err != nil {
		t.Fatal(err)
	}
	if rest, _ := io.ReadAll(in); string(rest) != "rest" {
		t.Errorf("%q is left", rest)
	}
}

// BenchmarkRelay is the time there and back with a size each way.
// What tensors take is measured with messages that really cross.
func TestMeasure(t *testing.T) {
	trip, perMiB, err := Measure(t.Context(), 20)
	if err != nil || trip <= 0 || perMiB < 0 || trip > time.Second || perMiB > time.Second {
		t.Errorf("a message takes %v and a MiB %v: %v", trip, perMiB, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := Measure(ended, 20); err == nil {
		t.Error("it was measured after the end")
	}
}

func BenchmarkRelay(b *testing.B) {
	for _, network := range []string{"unix", "tcp"} {
		for _, size := range []int{64, 1 << 20, 8 << 20} {
			b.Run(network+"/"+(time.Duration(size)).String(), func(b *testing.B) {
				p := dialled(b, network, served(b, network, fits, echo{}))
				m, err := NewMemory()
				if err != nil {
					b.Fatal(err)
				}
				defer m.Retire()
				part, err := m.Lend(int64(2 * size))
				if err != nil {
					b.Fatal(err)
				}
				defer m.Free(part)
				b.SetBytes(int64(size))
				for b.Loop() {
					j := jobOf(part.Data()[:size], part.Data()[size:])
					j.Memory = m
					if _, err := p.Run(b.Context(), j); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
