package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/local/sandbox"
)

// envRole makes the test binary play an instance or a provider.
const envRole = "LOCAL_TEST_ROLE"

func TestMain(m *testing.M) {
	if address := os.Getenv("TEST_UPSTREAM"); address != "" && len(os.Args) == 1 {
		playUpstream(address)
		return
	}
	switch role := variable(envRole); role {
	case "":
		goleak.VerifyTestMain(m)
	case "provider":
		playProvider(os.Args[1], os.Args[2] == "bare")
	case "restless provider":
		playRestlessProvider(os.Args[1], os.Args[2] == "bare")
	case "watchdog":
		playWatchdog(os.Args[1])
	default:
		playInstance(role, os.Args[1])
	}
}

// variable returns a variable of a provider or of an instance.
func variable(name string) string {
	return cmp.Or(os.Getenv(name), os.Getenv(sandbox.EnvFunction+name))
}

// playInstance does what its role says; its socket is the only argument.
func playInstance(role, socket string) {
	if err := sandbox.Enter(); err != nil {
		fmt.Println("sandbox:", err)
		os.Exit(1)
	}
	switch role {
	case "failing":
		fmt.Println("loading")
		fmt.Println("no such model")
		os.Exit(3)
	case "closing":
		syscall.Close(readyFD)
		select {}
	case "babbling":
		fmt.Fprintln(os.NewFile(readyFD, "ready"), "hello")
		select {}
	case "never ready":
		time.Sleep(time.Hour)
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
	case "forking":
		child := exec.Command("/bin/sleep", "1000")
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := child.Start(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	if err := serve(role, socket); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// serve answers on the socket. It becomes ready when the file BEGIN exists, if
// that is set.
func serve(role, socket string) error {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/_/ready", func(w http.ResponseWriter, _ *http.Request) {
		if _, err := os.Stat(variable("BEGIN")); variable("BEGIN") != "" && err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("/read", func(w http.ResponseWriter, r *http.Request) {
		content, err := os.ReadFile(strings.Replace(r.FormValue("file"), "SECRETS", sandbox.Dir(), 1))
		fmt.Fprint(w, string(content), err)
	})
	mux.HandleFunc("/environ", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, strings.Join(os.Environ(), "\n"))
	})
	mux.HandleFunc("/eat", func(http.ResponseWriter, *http.Request) { eat() })
	mux.HandleFunc("/burn", func(http.ResponseWriter, *http.Request) {
		for range 4 {
			go func() {
				for {
				}
			}()
		}
	})
	go http.Serve(listener, mux)
	for begin := variable("BEGIN"); begin != ""; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(begin); err == nil {
			break
		}
	}
	terminated := make(chan os.Signal, 1)
	if role != "stubborn" {
		signal.Notify(terminated, syscall.SIGTERM)
	}
	fmt.Println("serving")
	fmt.Fprintln(os.NewFile(readyFD, "ready"), "ready")
	<-terminated
	return nil
}

func eat() {
	var eaten [][]byte
	for {
		piece := make([]byte, 1<<20)
		for i := range piece {
			piece[i] = byte(i)
		}
		eaten = append(eaten, piece)
	}
}

// playProvider starts one instance that is ready and one that is starting,
// says so and waits to be killed.
func playProvider(dir string, bare bool) {
	os.Unsetenv(envRole)
	b, err := New(context.Background(), options(dir, bare))
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	slow := spec("slow", "serving")
	slow.Env["BEGIN"] = filepath.Join(dir, "begin")
	for _, s := range []cluster.InstanceSpec{spec("quick", "forking"), slow} {
		if _, err := b.Start(context.Background(), s); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	if event := <-b.Events(); event.ID != "quick" || event.State != cluster.Ready {
		fmt.Println("unexpected event", event)
		os.Exit(1)
	}
	// What the first has become is written down after the event.
	for {
		if r, err := b.layout.read("quick"); err == nil && !r.ReadyAt.IsZero() {
			break
		}
	}
	fmt.Println("started")
	select {}
}

// playRestlessProvider starts and stops instances for ever.
func playRestlessProvider(dir string, bare bool) {
	os.Unsetenv(envRole)
	b, err := New(context.Background(), options(dir, bare))
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("started")
	for i := 0; ; i++ {
		s := spec(fmt.Sprintf("i%d-%d", os.Getpid(), i), "forking")
		if i%2 == 1 {
			s = processSpec(string(s.ID), "http", "sleep 1000", dir)
			s.Limits.Memory = 64 << 20
		}
		s.Config.CPU = 100
		if _, err := b.Start(context.Background(), s); errors.Is(err, ErrNoCapacity) {
			instances, _ := b.Instances(context.Background())
			now, cancel := context.WithCancel(context.Background())
			cancel()
			_ = b.Stop(now, instances[i%len(instances)].ID)
		} else if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
}

// playUpstream is a function's program that serves.
func playUpstream(address string) {
	err := http.ListenAndServe(address, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, os.Getenv("TEST_NAME"))
	}))
	fmt.Println(err)
	os.Exit(1)
}
