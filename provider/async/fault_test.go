package async

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/async/queue"
	"github.com/faas-infer/faas-infer/provider/async/retry"
)

func listening(address string) bool {
	conn, err := net.Dial("tcp", address)
	if err == nil {
		conn.Close()
	}
	return err == nil
}

// An external NATS is killed again and again while requests come over NATS and HTTP.
// Accepted requests are executed. Others get 503 while NATS is away, and the provider
// recovers by itself.
func TestExternalNATSKilledUnderLoad(t *testing.T) {
	t.Parallel()
	dir, address := t.TempDir(), freeAddress(t)
	server := spawn(t, "nats", "CHILD_DIR="+dir, "CHILD_LISTEN="+address)
	until(t, "NATS listens", func() bool { return listening(address) })
	var done counts
	r := start(t, func(_ context.Context, _ string, r *frame.Request) (*frame.Response, error) {
		done.add(string(r.Body))
		return respond(200, ""), nil
	}, func(o *Options) { o.URL = "nats://" + address; o.AckWait = time.Second })
	g := gateway(t, "nats://"+address, time.Second)
	one := publish(8, func(body string) error { return g.Publish("faas-request", request("echo", "gateway "+body)) })
	var unavailable atomic.Int32
	two := publish(4, func(body string) error {
		w := r.do("POST", "/async-function/echo", "direct "+body)
		switch {
		case w.Code == 202:
			return nil
		case w.Code == 503 && w.Header().Get("Retry-After") != "":
			unavailable.Add(1)
		default:
			t.Errorf("answer %d %s", w.Code, w.Body)
		}
		return fmt.Errorf("%d", w.Code)
	})
	for range 3 {
		a, b := one.count(), two.count()
		until(t, "both ways work", func() bool { return one.count() > a+100 && two.count() > b+100 })
		server.kill()
		until(t, "503 meanwhile", func() bool { return r.do("POST", "/async-function/echo", "x").Code == 503 })
		server.start()
	}
	a, b := one.count(), two.count()
	until(t, "both ways work again", func() bool { return one.count() > a+100 && two.count() > b+100 })
	var accepted []string
	for _, body := range one.finish() {
		accepted = append(accepted, "gateway "+body)
	}
	for _, body := range two.finish() {
		accepted = append(accepted, "direct "+body)
	}
	until(t, "all that was accepted has been executed", func() bool {
		done.mu.Lock()
		defer done.mu.Unlock()
		for _, body := range accepted {
			if done.by[body] == 0 {
				return false
			}
		}
		return true
	})
	t.Logf("%d accepted, %d refused, %d of them with 503", len(accepted), one.refused+two.refused, unavailable.Load())
}

// A provider whose NATS is away starts, refuses, and works when it comes.
func TestExternalNATSComesLate(t *testing.T) {
	t.Parallel()
	address := freeAddress(t)
	done := make(chan struct{}, 1)
	r := start(t, func(context.Context, string, *frame.Request) (*frame.Response, error) {
		done <- struct{}{}
		return respond(200, ""), nil
	}, func(o *Options) { o.URL = "nats://" + address })
	if w := r.do("POST", "/async-function/echo", "x"); w.Code != 503 || !strings.Contains(w.Body.String(), "NATS cannot be reached") {
		t.Errorf("without NATS: %d %s", w.Code, w.Body)
	}
	spawn(t, "nats", "CHILD_DIR="+t.TempDir(), "CHILD_LISTEN="+address)
	until(t, "it is accepted", func() bool { return r.do("POST", "/async-function/echo", "x").Code == 202 })
	<-done
	if err := gateway(t, "nats://"+address, time.Minute).Publish("faas-request", request("echo", "y")); err != nil {
		t.Error(err)
	}
	<-done
}

// smallDisk mounts a tmpfs of so many MiB. It returns "" if that is not allowed.
func smallDisk(t testing.TB, mib int) string {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", mib)); err != nil {
		t.Logf("a disk of its own takes rights that this user lacks (%v)", err)
		return ""
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// On a full disk requests get 503, and accepted ones are executed. The queue accepts
// requests again when there is room, even after writes have failed.
func TestFullDisk(t *testing.T) {
	dir := smallDisk(t, 64)
	if dir == "" {
		return
	}
	for _, c := range []struct {
		name string
		// left bytes are free when the ballast lies on the disk.
		left int64
	}{{"below the reserve", 3 << 20}, {"to the last byte", 0}} {
		t.Run(c.name, func(t *testing.T) {
			var done counts
			release := make(chan struct{})
			r := start(t, func(ctx context.Context, _ string, r *frame.Request) (*frame.Response, error) {
				select {
				case <-release:
				case <-ctx.Done():
				}
				done.add(string(r.Body[:8]))
				return respond(200, ""), nil
			}, func(o *Options) { o.Dir = filepath.Join(dir, c.name) })
			accepted := 0
			send := func() int {
				w := r.do("POST", "/async-function/echo", fmt.Sprintf("%08d", accepted)+strings.Repeat("x", 50<<10))
				if w.Code == 202 {
					accepted++
				}
				return w.Code
			}
			for range 50 {
				if code := send(); code != 202 {
					t.Fatal(code)
				}
			}
			ballast := filepath.Join(dir, "ballast")
			fill(t, ballast, c.left)
			// The look at the disk may be a moment old: until then the disk
			// itself refuses.
			until(t, "503", func() bool { return send() == 503 })
			if w := r.do("POST", "/async-function/echo", "x"); w.Code != 503 || w.Header().Get("Retry-After") == "" {
				t.Errorf("answer %d %s", w.Code, w.Body)
			}
			if err := os.Remove(ballast); err != nil {
				t.Fatal(err)
			}
			until(t, "it is accepted again", func() bool { return send() == 202 })
			close(release)
			until(t, "all is executed", func() bool { return done.different() == accepted })
		})
	}
}

// After failed writes, the queue is opened again when there is room.
func TestFailedWrites(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t, 64)
	if dir == "" {
		return
	}
	var done counts
	var broken atomic.Bool
	r := start(t, func(_ context.Context, _ string, r *frame.Request) (*frame.Response, error) {
		if broken.Load() {
			return nil, statusError(503)
		}
		done.add(string(r.Body))
		return respond(200, ""), nil
	}, func(o *Options) {
		o.Dir, o.AckWait = filepath.Join(dir, "nats"), time.Second
		o.Functions = &deployed{by: map[string]map[string]string{"echo.openfaas-fn": {retry.Attempts: "1000", retry.MinWait: "100ms", retry.MaxWait: "200ms"}}}
	})
	broken.Store(true)
	for i := range 100 {
		r.enqueue(t, "echo", fmt.Sprint(i))
	}
	g := gateway(t, "nats://"+r.Address(), time.Second)
	fill(t, filepath.Join(dir, "ballast"), 0)
	// Past the look at the disk.
	js, large := r.broker.JetStream(), make([]byte, 1<<20)
	for failed := false; !failed; {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		_, err := js.Publish(ctx, queue.WorkSubjects+"openfaas-fn.echo", large)
		failed = err != nil
		cancel()
	}
	until(t, "503", func() bool { return r.do("POST", "/async-function/echo", "x").Code == 503 })
	time.Sleep(1500 * time.Millisecond) // The broker looks, and finds no room to mend anything.
	if err := os.Remove(filepath.Join(dir, "ballast")); err != nil {
		t.Fatal(err)
	}
	until(t, "it is accepted again", func() bool { return r.do("POST", "/async-function/echo", "new").Code == 202 })
	// The gateway's connection has come back by itself.
	until(t, "the gateway publishes", func() bool { return g.Publish("faas-request", request("echo", "gateway")) == nil })
	broken.Store(false)
	until(t, "all are executed", func() bool { return done.different() == 102 })
}

// fill writes a file until so many bytes are left on the disk.
func fill(t testing.TB, file string, left int64) {
	t.Helper()
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var s unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(file), &s); err != nil {
		t.Fatal(err)
	}
	if left > 0 {
		_, err = f.Write(make([]byte, int64(s.Bavail)*s.Bsize-left))
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	for block := make([]byte, 1<<20); len(block) > 0; {
		if _, err := f.Write(block); err != nil {
			block = block[:len(block)/2]
		}
	}
}

// If a stream's file was cut off in the middle, the requests before the cut are executed.
func TestCutOffFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	hold := func(ctx context.Context, _ string, _ *frame.Request) (*frame.Response, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	r := start(t, hold, func(o *Options) { o.Dir = dir })
	for i := range 100 {
		r.enqueue(t, "echo", fmt.Sprintf("%03d%s", i, strings.Repeat("x", 1000)))
	}
	copied := filepath.Join(t.TempDir(), "copy")
	// As a power failure leaves it: no index is written.
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	blocks, err := filepath.Glob(filepath.Join(copied, "jetstream/*/streams/FAAS_INFER_ASYNC/msgs/*.blk"))
	if err != nil || len(blocks) != 1 {
		t.Fatalf("blocks %v %v", blocks, err)
	}
	info, err := os.Stat(blocks[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(blocks[0], info.Size()/2+13); err != nil {
		t.Fatal(err)
	}
	var done counts
	again := start(t, func(_ context.Context, _ string, r *frame.Request) (*frame.Response, error) {
		done.add(string(r.Body[:3]))
		return respond(200, ""), nil
	}, func(o *Options) { o.Dir = copied; o.AckWait = time.Second })
	again.enqueue(t, "echo", "new")
	until(t, "an empty queue", func() bool {
		s, err := again.Status(t.Context())
		return err == nil && s.Queued+uint64(s.InFlight) == 0
	})
	if n := done.different(); n < 48 || n > 55 || done.by["new"] != 1 || done.by["000"] == 0 {
		t.Errorf("%d were executed, want about half of 100, and the new one", n)
	}
}

// If a stream's description is damaged, the provider says what to do.
func TestDamagedDescription(t *testing.T) {
	dir := t.TempDir()
	r := start(t, func(context.Context, string, *frame.Request) (*frame.Response, error) {
		return nil, statusError(503)
	}, func(o *Options) { o.Dir = dir })
	r.enqueue(t, "echo", "x")
	r.stop()
	for _, name := range []string{"meta.inf", "meta.sum"} {
		file := filepath.Join(dir, "jetstream/$G/streams/FAAS_INFER_ASYNC", name)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, text[:len(text)/2], 0o600); err != nil {
			t.Fatal(err)
		}
		q, err := Open(t.Context(), options(t, echo, func(o *Options) { o.Dir = dir }))
		if err == nil {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			q.Close(ctx)
			t.Errorf("%s is cut off, and the queue opens", name)
		} else if !strings.Contains(err.Error(), "move that directory away") || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s is cut off: %v", name, err)
		}
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// With the files as they were, all is there.
	var done counts
	start(t, func(_ context.Context, _ string, r *frame.Request) (*frame.Response, error) {
		done.add(string(r.Body))
		return respond(200, ""), nil
	}, func(o *Options) { o.Dir = dir })
	until(t, "it is executed", func() bool { return done.different() == 1 })
}

// Close gives back the requests in hand, and the next provider executes them soon.
func TestClosedInTheMiddle(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	begun := make(chan struct{}, 10)
	r := start(t, func(ctx context.Context, _ string, _ *frame.Request) (*frame.Response, error) {
		begun <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}, func(o *Options) { o.Dir = dir; o.AckWait = time.Hour })
	for i := range 10 {
		r.enqueue(t, "echo", fmt.Sprint(i))
	}
	for range 10 {
		<-begun
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	r.Close(ctx)
	if w := r.do("POST", "/async-function/echo", "x"); w.Code != 503 {
		t.Errorf("accepted by a closed queue: %d", w.Code)
	}
	var done counts
	start(t, func(_ context.Context, _ string, r *frame.Request) (*frame.Response, error) {
		done.add(string(r.Body))
		return respond(200, ""), nil
	}, func(o *Options) { o.Dir, o.AckWait = dir, time.Second })
	until(t, "all are executed", func() bool { return done.different() == 10 })
}

// The largest body, and many that are large: the bytes in hand are bounded.
func TestLargeBodies(t *testing.T) {
	t.Parallel()
	var done atomic.Int32
	body := bytes.Repeat([]byte("0123456789abcdef"), 23<<16)
	r := start(t, func(_ context.Context, _ string, r *frame.Request) (*frame.Response, error) {
		if len(r.Body) != len(body) && len(r.Body) != 1<<20 {
			t.Errorf("a body of %d bytes", len(r.Body))
		}
		done.Add(1)
		return respond(200, ""), nil
	}, func(o *Options) { o.MaxHeld = 64 << 20 })
	// On a busy machine the disk may be so slow that the queue says so. It may have stored the message all the same.
	enqueue := func(body []byte) {
		until(t, "the queue takes a large body", func() bool {
			w := r.do("POST", "/async-function/echo", string(body))
			if w.Code != 202 && !strings.Contains(w.Body.String(), "does not answer in time") {
				t.Fatalf("enqueue: %d %s", w.Code, w.Body)
			}
			return w.Code == 202
		})
	}
	for range 2 {
		enqueue(body)
		for range 3 {
			enqueue(body[:1<<20])
		}
	}
	until(t, "all are executed", func() bool { return done.Load() >= 8 })
	if w := r.do("POST", "/async-function/echo", string(body)+strings.Repeat("x", 1<<20)); w.Code != 413 {
		t.Errorf("24 MiB: %d %s", w.Code, w.Body)
	}
}

// A full queue refuses new requests and keeps the old ones.
func TestQueueFull(t *testing.T) {
	release := make(chan struct{})
	var done atomic.Int32
	r := start(t, func(ctx context.Context, _ string, _ *frame.Request) (*frame.Response, error) {
		select {
		case <-release:
		case <-ctx.Done():
		}
		done.Add(1)
		return respond(200, ""), nil
	}, func(o *Options) { o.MaxQueued = 1 << 20 })
	accepted := int32(0)
	for {
		w := r.do("POST", "/async-function/echo", strings.Repeat("x", 50<<10))
		if w.Code == 503 && strings.Contains(w.Body.String(), "queue is full") {
			break
		}
		if w.Code != 202 {
			t.Fatal(w.Code, w.Body)
		}
		accepted++
	}
	if err := gateway(t, "nats://"+r.Address(), 5*time.Second).Publish("faas-request", []byte(`{"Function":"echo","Body":"`+strings.Repeat("AAAA", 50<<10)+`"}`)); err == nil || !strings.Contains(err.Error(), "full") {
		t.Errorf("the gateway is told %v", err)
	}
	close(release)
	until(t, "all are executed", func() bool { return done.Load() == accepted })
	until(t, "it is accepted again", func() bool { return r.do("POST", "/async-function/echo", "x").Code == 202 })
}
