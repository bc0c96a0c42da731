package local

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/local/sandbox"
	"github.com/faas-infer/faas-infer/instance/engine"
	"github.com/faas-infer/faas-infer/instance/watchdog"
)

// playWatchdog is an ordinary function's instance, with the real watchdog.
func playWatchdog(socket string) {
	syscall.CloseOnExec(readyFD)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	code, err := runWatchdog(ctx, socket)
	if err != nil {
		watchdog.NewLineLog(os.Stderr).Printf("%v", err)
	}
	os.Exit(code)
}

func runWatchdog(ctx context.Context, socket string) (code int, err error) {
	config, err := watchdog.ReadConfig(watchdog.Variables(sandbox.FunctionEnvironment()))
	if err != nil {
		return 1, err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return 1, err
	}
	cell, err := sandbox.EnterFunction(variable("TEST_BUNDLE"))
	if err != nil {
		return 1, err
	}
	log := watchdog.NewLineLog(os.Stderr)
	server, err := watchdog.New(watchdog.Options{
		Config: config, Launcher: cell, Log: log, Environment: append(sandbox.FunctionEnvironment(), cell.Environment()...),
	})
	if err != nil {
		return 1, err
	}
	defer server.Close()
	if err = server.Start(ctx); err == nil {
		err = server.Serve(ctx, []net.Listener{listener}, func() error {
			_, err := fmt.Fprintln(os.NewFile(readyFD, "ready"), "ready")
			return err
		})
	}
	if exit, ok := err.(*watchdog.ExitError); ok {
		return exit.Code, err
	}
	if err != nil {
		return 1, err
	}
	return 0, nil
}

// function returns the spec of an ordinary function's instance.
func function(t *testing.T, id, mode, process string) cluster.InstanceSpec {
	t.Helper()
	return processSpec(id, mode, process, t.TempDir())
}

func processSpec(id, mode, process, bundle string) cluster.InstanceSpec {
	s := spec(id, "watchdog")
	s.Kind, s.Bundle, s.Config = cluster.Process, bundle, cluster.Config{}
	s.Env["mode"], s.Env["fprocess"], s.Env["TEST_BUNDLE"] = mode, process, bundle
	return s
}

func TestFunctionAnswers(t *testing.T) {
	eachWay(t, func(t *testing.T, bare bool) {
		b := open(t, options(t.TempDir(), bare))
		s := function(t, "one", "classic", "./handler")
		s.Limits = cluster.Resources{CPU: 100, Memory: 5 << 20}
		script := "#!/bin/sh\necho $Http_Method $Http_Query; cat $SECRETS/token; id -u\n"
		if err := os.WriteFile(filepath.Join(s.Bundle, "handler"), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
		token := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(token, []byte("s3cr3t\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		s.Secrets = map[string]string{"token": token}
		s.Env["SECRETS"] = sandbox.SecretsDir
		if !b.isolated {
			s.Env["SECRETS"] = filepath.Join(b.layout.instance("one"), "secrets")
		}
		instance := begin(t, b, s)
		expect(t, b, "one", cluster.Ready)
		want := fmt.Sprintf("GET a=b\ns3cr3t\n%d\n", os.Geteuid())
		if b.users {
			want = fmt.Sprintf("GET a=b\ns3cr3t\n%d\n", userOf(b, "one"))
		}
		if got := ask(t, instance, "/?a=b"); got != want {
			t.Errorf("it answers %q, want %q", got, want)
		}
		if usage, err := b.Usage(t.Context(), "one"); err != nil || usage.Memory < 1<<20 {
			t.Errorf("usage %+v, %v", usage, err)
		}
		if err := b.Stop(t.Context(), "one"); err != nil {
			t.Fatal(err)
		}
		nothingLeft(t, b)
	})
}

func userOf(b *Backend, id cluster.InstanceID) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.entries[id].record.User
}

func TestFunctionsHaveUsersOfTheirOwn(t *testing.T) {
	b := open(t, options(t.TempDir(), false))
	if !b.users {
		t.Log("not the rights for other users; nothing more to try")
		return
	}
	begin(t, b, function(t, "one", "classic", "id -u"))
	expect(t, b, "one", cluster.Ready)
	begin(t, b, function(t, "two", "classic", "id -u"))
	expect(t, b, "two", cluster.Ready)
	if one, two := userOf(b, "one"), userOf(b, "two"); one == two || one < sandbox.FirstUser {
		t.Errorf("users %d and %d", one, two)
	}
	b.mu.Lock()
	taken := b.entries["one"].record.User
	id := "one"
	free := b.freeUser(id)
	b.mu.Unlock()
	if free == taken {
		t.Error("a user was given twice")
	}
}

func TestFunctionOutOfMemory(t *testing.T) {
	b := open(t, options(t.TempDir(), false))
	if b.tree == nil {
		t.Log("no cgroups; nothing more to try")
		return
	}
	s := function(t, "one", "classic", `sh -c 'if [ "$Http_Query" = eat ]; then a=x; while :; do a=$a$a; done; fi; echo fine'`)
	s.Limits.Memory = 8 << 20
	instance := begin(t, b, s)
	expect(t, b, "one", cluster.Ready)
	if got := ask(t, instance, "/?eat"); !strings.Contains(got, "out of memory") {
		t.Errorf("it answers %q", got)
	}
	if got := ask(t, instance, "/"); got != "fine\n" {
		t.Errorf("after that it answers %q", got)
	}
	serving := function(t, "two", "http", `sh -c 'a=x; while :; do a=$a$a; done'`)
	serving.Limits.Memory = 8 << 20
	begin(t, b, serving)
	if exited := expect(t, b, "two", cluster.Exited); exited.Reason != "out of memory (limit 8 MiB)" {
		t.Errorf("reason %q", exited.Reason)
	}
}

func TestFunctionQuota(t *testing.T) {
	b := open(t, options(t.TempDir(), false))
	if b.tree == nil {
		t.Log("no cgroups; nothing more to try")
		return
	}
	s := function(t, "one", "classic", `timeout 1 sh -c 'while :; do :; done'`)
	s.Limits.CPU = 200
	instance := begin(t, b, s)
	expect(t, b, "one", cluster.Ready)
	// Where the machine stands still meanwhile, it seems to be too much, or is too little.
	var seen []int
	for len(seen) < 8 {
		if _, err := b.Usage(t.Context(), "one"); err != nil {
			t.Fatal(err)
		}
		ask(t, instance, "/")
		usage, err := b.Usage(t.Context(), "one")
		if err != nil {
			t.Fatal(err)
		}
		if usage.CPU <= 300 && usage.CPU >= 20 {
			return
		}
		seen = append(seen, usage.CPU)
	}
	t.Errorf("it used %vm; the limit is 200", seen)
}

func TestFunctionThatEndsIsReported(t *testing.T) {
	eachWay(t, func(t *testing.T, bare bool) {
		b := open(t, options(t.TempDir(), bare))
		begin(t, b, function(t, "one", "http", `sh -c 'echo no such module >&2; exit 3'`))
		exited := expect(t, b, "one", cluster.Exited)
		if !strings.Contains(exited.Reason, "exited with status 3: ") || strings.Contains(exited.Reason, "Z ") {
			t.Errorf("reason %q", exited.Reason)
		}
		nothingLeft(t, b)
	})
}

// Everything that a function leaves behind is removed with its instance, however the
// instance ends.
func TestNothingIsLeftOfAFunction(t *testing.T) {
	eachWay(t, func(t *testing.T, bare bool) {
		b := open(t, options(t.TempDir(), bare))
		mounts := mountCount(t)
		const script = `sh -c 'setsid sleep 1000 & sleep 1000 & echo started; exit 0'`
		for i, end := range []func(id cluster.InstanceID){
			func(id cluster.InstanceID) {
				stopNow(t, b, id)
				expect(t, b, id, cluster.Stopping)
			},
			func(id cluster.InstanceID) {
				if err := b.Stop(t.Context(), id); err != nil {
					t.Error(err)
				}
				expect(t, b, id, cluster.Stopping)
			},
			func(id cluster.InstanceID) {
				if err := syscall.Kill(pidOf(t, b, id), syscall.SIGKILL); err != nil {
					t.Error(err)
				}
			},
		} {
			id := cluster.InstanceID(fmt.Sprintf("i%d", i))
			instance := begin(t, b, function(t, string(id), "classic", script))
			expect(t, b, id, cluster.Ready)
			if got := ask(t, instance, "/"); got != "started\n" {
				t.Errorf("it answers %q", got)
			}
			end(id)
			expect(t, b, id, cluster.Exited)
			nothingLeft(t, b)
		}
		if now := mountCount(t); now != mounts {
			t.Errorf("%d mounts, before it were %d", now, mounts)
		}
	})
}

// mountCount counts the mounts of the machine at places where a sandbox has some.
func mountCount(t *testing.T) (count int) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	places := []string{"/tmp", "/var/tmp", "/dev/shm", "/root", "/home", sandbox.SecretsDir, "/proc"}
	for line := range strings.Lines(string(mounts)) {
		target := strings.Fields(line)[1]
		if slices.Contains(places, target) || strings.HasPrefix(target, "/home/") {
			count++
		}
	}
	return count
}

func TestForkBombIsContained(t *testing.T) {
	b := open(t, options(t.TempDir(), false))
	if !b.users || b.tree == nil {
		t.Log("not the rights to contain one; nothing more to try")
		return
	}
	s := function(t, "one", "classic", `sh -c 'f() { f | f & f; }; f'`)
	s.Env["exec_timeout"] = "300ms"
	s.Limits = cluster.Resources{CPU: 500, Memory: 64 << 20}
	instance := begin(t, b, s)
	expect(t, b, "one", cluster.Ready)
	ask(t, instance, "/")
	if err := b.Stop(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, b)
}

func TestFunctionIsTakenOver(t *testing.T) {
	eachWay(t, func(t *testing.T, bare bool) {
		dir := t.TempDir()
		first, err := New(t.Context(), options(dir, bare))
		if err != nil {
			t.Fatal(err)
		}
		s := function(t, "one", "classic", "cat /proc/self/oom_score_adj")
		s.Limits = cluster.Resources{CPU: 300, Memory: 64 << 20}
		begin(t, first, s)
		expect(t, first, "one", cluster.Ready)
		user := userOf(first, "one")
		for r, err := first.layout.read("one"); err != nil || r.ReadyAt.IsZero(); r, err = first.layout.read("one") {
			time.Sleep(time.Millisecond)
		}
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		b := open(t, options(dir, bare))
		instances, err := b.Instances(t.Context())
		if err != nil || len(instances) != 1 || instances[0].State != cluster.Ready || instances[0].Kind != cluster.Process {
			t.Fatalf("instances %+v, %v", instances, err)
		}
		if got := ask(t, instances[0], "/"); got != "0\n" {
			t.Errorf("it answers %q", got)
		}
		if userOf(b, "one") != user {
			t.Error("its user was forgotten")
		}
		if err := b.Stop(t.Context(), "one"); err != nil {
			t.Fatal(err)
		}
		nothingLeft(t, b)
	})
}

func TestPrivateNetworks(t *testing.T) {
	b := open(t, options(t.TempDir(), false))
	if !b.isolated {
		t.Log("no private networks here; nothing more to try")
		return
	}
	for _, id := range []string{"one", "two"} {
		s := function(t, id, "http", "sh -c 'exec \"$FAAS_INFER\"'")
		s.Env["FAAS_INFER_NETWORK"], s.Env["upstream_url"] = PrivateNetwork, "http://127.0.0.1:5000"
		s.Env["TEST_UPSTREAM"], s.Env["TEST_NAME"] = "127.0.0.1:5000", id
		instance := begin(t, b, s)
		expect(t, b, cluster.InstanceID(id), cluster.Ready)
		if got := ask(t, instance, "/"); got != id {
			t.Errorf("%s answers %q", id, got)
		}
	}
}

// If another instance's program has the port, that program must not answer for the second
// instance.
func TestPortOfAnotherInstance(t *testing.T) {
	b := open(t, options(t.TempDir(), false))
	if !b.users {
		t.Log("not the rights for other users; nothing more to try")
		return
	}
	address, err := engine.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	upstreamOf := func(id string) cluster.InstanceSpec {
		s := function(t, id, "http", "sh -c 'sleep 0.2; exec \"$FAAS_INFER\"'")
		s.Env["upstream_url"], s.Env["TEST_UPSTREAM"], s.Env["TEST_NAME"] = "http://"+address, address, id
		return s
	}
	begin(t, b, upstreamOf("one"))
	expect(t, b, "one", cluster.Ready)
	begin(t, b, upstreamOf("two"))
	if exited := expect(t, b, "two", cluster.Exited); !strings.Contains(exited.Reason, "exit status 1") {
		t.Errorf("reason %q", exited.Reason)
	}
}

func TestManyFunctionsAtOnce(t *testing.T) {
	b := open(t, options(t.TempDir(), false))
	const count = 8
	var work sync.WaitGroup
	for i := range count {
		s := function(t, fmt.Sprintf("i%d", i), "classic", "echo "+fmt.Sprint(i))
		work.Go(func() {
			instance, err := b.Start(t.Context(), s)
			if err != nil {
				t.Error(err)
				return
			}
			for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
				got := ask(t, instance, "/")
				if got == fmt.Sprintf("%d\n", i) {
					return
				}
				if time.Now().After(deadline) {
					t.Errorf("%s answers %q", instance.ID, got)
					return
				}
			}
		})
	}
	work.Wait()
}

func TestWhatCannotBeRunIsRefused(t *testing.T) {
	b := open(t, options(t.TempDir(), true))
	for name, change := range map[string]func(*cluster.InstanceSpec){
		"kind":     func(s *cluster.InstanceSpec) { s.Kind = "pod" },
		"limits":   func(s *cluster.InstanceSpec) { s.Limits.CPU = -1 },
		"requests": func(s *cluster.InstanceSpec) { s.Config.Memory = -1 },
		"model":    func(s *cluster.InstanceSpec) { s.Kind = cluster.Model },
	} {
		s := function(t, "one", "classic", "cat")
		change(&s)
		if _, err := b.Start(t.Context(), s); err == nil {
			t.Errorf("%s: it was started", name)
			stopNow(t, b, "one")
		}
	}
}
