package objects

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/client"
)

// candidateVariable makes this program a candidate in an election. It has the kubeconfig
// and the identity.
const candidateVariable = "FAAS_INFER_TEST_CANDIDATE"

// lease is shorter than a provider's, for quick tests.
const lease = 3 * time.Second

// candidate takes part in the election until it is killed, and prints a line when it leads.
func candidate(of string) int {
	file, identity, _ := strings.Cut(of, ",")
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err == nil {
		var e *client.Election
		e, err = client.NewElection(client.ElectionOptions{Config: config, Namespace: "openfaas", Name: "test", Identity: identity, Lease: lease, Logger: zerolog.Nop(),
			Changed: func(leading bool) { fmt.Println(identity, leading) }})
		if err == nil {
			err = e.Run(context.Background())
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// elected starts a candidate as a process and returns its output lines.
func elected(t *testing.T, identity string) (*exec.Cmd, <-chan string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self)
	c.Env = append(os.Environ(), candidateVariable+"="+cluster.Kubeconfig()+","+identity)
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 16)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		_ = c.Process.Kill() // It may be dead already.
		_ = c.Wait()
	})
	return c, lines
}

func next(t *testing.T, lines <-chan string, want string) {
	t.Helper()
	select {
	case got := <-lines:
		if got != want {
			t.Fatalf("%q, not %q", got, want)
		}
	case <-time.After(patience):
		t.Fatalf("nobody says %q", want)
	}
}

// tries is how often a test may fail because the machine stalls.
const tries = 3

// When a leader is killed, another leads after its lease of 3 s. When a leader leaves,
// another leads at once.
func TestLeader(t *testing.T) {
	t.Parallel() // It uses a lease of its own only.
	for range tries {
		if followed(t) {
			return
		}
	}
	t.Errorf("of %d leaders, none led until it was killed", tries)
}

// followed kills a leader and waits for the next. It returns false if the machine stalled
// for so long that the other led before.
func followed(t *testing.T) bool {
	t.Helper()
	first, says := elected(t, "first")
	next(t, says, "first true")
	var changes []bool
	e, err := client.NewElection(client.ElectionOptions{Config: cluster.Config(), Namespace: "openfaas", Name: "test", Identity: "second", Lease: lease, Logger: zerolog.Nop(),
		Changed: func(leading bool) { changes = append(changes, leading) }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	eventually(t, func() string {
		if e.Leader() != "first" && !e.Leading() {
			return "the leader is " + e.Leader()
		}
		return ""
	})
	early := e.Leading()
	killed := time.Now()
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if early {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		return false
	}
	eventually(t, func() string {
		if !e.Leading() {
			return "nobody leads"
		}
		return ""
	})
	t.Logf("followed after %v", time.Since(killed))
	if held := kubectl(t, "", "get", "lease", "test", "-n", "openfaas", "-o", "jsonpath={.spec.leaseDurationSeconds}"); held != "3" {
		t.Errorf("the lease is of %s s", held)
	}
	third, says := elected(t, "third")
	left := time.Now()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	// Where the machine stands still it may lose the lead in between, and get it again.
	if n := len(changes); e.Leading() || n == 0 || n%2 != 0 || !changes[0] || changes[n-1] {
		t.Errorf("leading %v, changes %v", e.Leading(), changes)
	}
	next(t, says, "third true")
	t.Logf("one that left was followed after %v", time.Since(left))
	if err := third.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	return true
}

// A leader that cannot reach the API server stops leading before another can lead.
func TestLeaderWithoutAPIServer(t *testing.T) {
	t.Parallel() // It uses a lease of its own only.
	config := cluster.Config()
	cut := newSwitch()
	config.Dial = cut.dial
	e, err := client.NewElection(client.ElectionOptions{Config: config, Namespace: "openfaas", Name: "cut", Identity: "x", Lease: lease, Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	leads := func() string {
		if !e.Leading() {
			return "it does not lead"
		}
		return ""
	}
	eventually(t, leads)
	cut.off()
	began := time.Now()
	eventually(t, func() string {
		// First the time, then whether it leads: a machine that stands still between the
		// two makes it lead for longer in no case.
		since := time.Since(began)
		if !e.Leading() {
			return ""
		}
		if since > lease {
			t.Fatalf("it leads %v after it was cut off", since)
		}
		return "it leads"
	})
	t.Logf("it led for %v without the API server", time.Since(began))
	cut.on()
	eventually(t, leads)
	cancel()
	<-done
}

func TestLeaderRefusesNamelessOnes(t *testing.T) {
	if _, err := client.NewElection(client.ElectionOptions{Config: cluster.Config(), Namespace: "openfaas", Name: "x"}); err == nil || !strings.Contains(err.Error(), "Identity") {
		t.Error(err)
	}
}
