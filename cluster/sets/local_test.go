package sets

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/local"
)

// envRole makes the test binary a member of a set instead of a test.
const envRole = "SETS_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(envRole) == "member" {
		if err := serve(os.Args[1]); err != nil {
			panic(err)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// serve is a member: it keeps what PUT /v1/workers says and gives it back, until SIGTERM.
func serve(socket string) error {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	kept := []byte("none")
	http.HandleFunc("/v1/workers", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.Method == http.MethodPut {
			kept, _ = io.ReadAll(r.Body)
			return
		}
		_, _ = w.Write(kept)
	})
	http.HandleFunc("/_/ready", func(http.ResponseWriter, *http.Request) {})
	ended, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	context.AfterFunc(ended, func() { _ = listener.Close() })
	ready := os.NewFile(3, "ready")
	if _, err := ready.WriteString("ready\n"); err != nil {
		return err
	}
	_ = ready.Close()
	if err := http.Serve(listener, nil); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// onLocal opens a backend of sets over one of processes.
func onLocal(t *testing.T, dir string) *Backend {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	under, err := local.New(t.Context(), local.Options{
		Dir: dir, NodeName: "a", Total: &cluster.Resources{CPU: 4000, Memory: 1 << 30}, NoCgroups: true, NoSandbox: true, Logger: zerolog.Nop(),
		Command: func(_ cluster.InstanceSpec, socket string) (argv, env []string) {
			// The race detector makes every exit take a second.
			return []string{self, socket}, []string{envRole + "=member", "GORACE=atexit_sleep_ms=0"}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	b, err := New(t.Context(), under, Options{Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(errors.Join(err, under.Close()))
	}
	return b
}

// await waits for the next event, which must be of the set and this state.
func await(t *testing.T, b *Backend, state cluster.State) cluster.Instance {
	t.Helper()
	select {
	case in := <-b.Events():
		if in.ID != "s" || in.State != state {
			t.Fatalf("event %+v, want %s", in, state)
		}
		return in
	case <-time.After(time.Minute):
		t.Fatalf("the set did not become %s", state)
	}
	return cluster.Instance{}
}

// workersOf asks the master for what it was told.
func workersOf(t *testing.T, b *Backend) string {
	t.Helper()
	all, err := b.Instances(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatalf("%+v, %v", all, err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, Dial: func(_, _ string) (net.Conn, error) {
		return net.Dial(all[0].Network, all[0].Address)
	}}}
	answer, err := client.Get("http://instance/v1/workers")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// membersOf lists the members as the backend below has them.
func membersOf(t *testing.T, b *Backend) map[int]cluster.Instance {
	t.Helper()
	all, err := b.under.Instances(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	members := map[int]cluster.Instance{}
	for _, in := range all {
		members[in.Member] = in
	}
	return members
}

// Members are processes of the local backend: a set of three starts, loses a worker, gets another,
// is taken over by the next provider, and stops. Its master always knows its workers' sockets.
func TestOnLocalBackend(t *testing.T) {
	dir := t.TempDir()
	b := onLocal(t, dir)
	if _, err := b.Instances(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := spec("s")
	want.Config.Memory = 3 << 20
	if _, err := b.Start(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	if ready := await(t, b, cluster.Ready); ready.ReadyAt.IsZero() || ready.Config != want.Config {
		t.Errorf("%+v", ready)
	}
	knows := func(b *Backend) bool {
		members, told := membersOf(t, b), workersOf(t, b)
		return len(members) == 3 && strings.HasPrefix(told, `{"plan":"`) && strings.Contains(told, `"member":1,"network":"unix","address":"`+members[1].Address+`"`) && strings.Contains(told, members[2].Address)
	}
	if !knows(b) {
		t.Errorf("the master knows %s", workersOf(t, b))
	}
	if nodes, err := b.Nodes(t.Context()); err != nil || nodes[0].Free.CPU != 1000 {
		t.Errorf("%+v, %v", nodes, err)
	}
	second := want
	second.ID = "t"
	if _, err := b.Start(t.Context(), second); !errors.Is(err, local.ErrNoCapacity) || len(membersOf(t, b)) != 3 {
		t.Errorf("beside it: %v", err)
	}

	killed := membersOf(t, b)[1]
	now, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.under.Stop(now, killed.ID); err != nil {
		t.Fatal(err)
	}
	poll(t, "another worker", func() bool { m := membersOf(t, b)[1]; return m.ID != "" && m.ID != killed.ID && knows(b) })
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}

	b = onLocal(t, dir)
	all, err := b.Instances(t.Context())
	if err != nil || len(all) != 1 || all[0].State != cluster.Ready || all[0].Config != want.Config || all[0].Plan != threeParts {
		t.Fatalf("the next provider finds %+v, %v", all, err)
	}
	poll(t, "the workers", func() bool { return knows(b) })
	if err := b.Park(t.Context(), "s"); err != nil {
		t.Error(err)
	}
	if nodes, err := b.Nodes(t.Context()); err != nil || nodes[0].Free.CPU != 4000 {
		t.Errorf("%+v, %v", nodes, err)
	}
	if err := b.Resize(t.Context(), "s", want.Config); err != nil {
		t.Error(err)
	}
	stop, done := context.WithTimeout(t.Context(), time.Minute)
	defer done()
	if err := b.Stop(stop, "s"); err != nil {
		t.Error(err)
	}
	await(t, b, cluster.Stopping)
	if exited := await(t, b, cluster.Exited); exited.Reason != "stopped" || len(membersOf(t, b)) != 0 {
		t.Errorf("%+v", exited)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// poll waits until something holds.
func poll(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no %s", what)
		}
	}
}

// A master that refuses its workers' addresses, or does not answer, is an error with its answer.
func TestConnectFails(t *testing.T) {
	socket := t.TempDir() + "/s"
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "another plan", http.StatusConflict) })}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	master := cluster.Instance{InstanceSpec: spec("s"), Network: "unix", Address: socket}
	if err := Connect(t.Context(), new(net.Dialer).DialContext, master, nil); err == nil || !strings.Contains(err.Error(), "409 Conflict: another plan") {
		t.Error(err)
	}
	_ = server.Close()
	<-done
	if err := Connect(t.Context(), new(net.Dialer).DialContext, master, nil); err == nil {
		t.Error("nobody answers, and it is no error")
	}
	master.Plan = "{}"
	if err := Connect(t.Context(), new(net.Dialer).DialContext, master, nil); err == nil || !strings.Contains(err.Error(), "plan: ") {
		t.Error(err)
	}
}
