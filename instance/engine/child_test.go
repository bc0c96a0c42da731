package engine_test

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/instance/engine"
	"github.com/faas-infer/faas-infer/instance/logtest"
)

// motherEnv makes this test's program one that starts a child and then dies.
const motherEnv = "FAAS_INFER_TEST_MOTHER"

func TestMain(m *testing.M) {
	if os.Getenv(motherEnv) != "" {
		c, err := engine.StartChild(engine.ChildOptions{Argv: []string{"/bin/sh", "-c", "sleep 600"}, Log: os.Stderr})
		if err != nil {
			panic(err)
		}
		os.Stdout.WriteString(strconv.Itoa(c.PID()) + "\n")
		select {}
	}
	goleak.VerifyTestMain(m)
}

func shell(t *testing.T, script string) (*engine.Child, *logtest.Log) {
	t.Helper()
	l := &logtest.Log{}
	c, err := engine.StartChild(engine.ChildOptions{Argv: []string{"/bin/sh", "-c", script}, Env: os.Environ(), Log: l, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return c, l
}

// await polls until a condition holds.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !so(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

func alive(pid int) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(text), ") Z ")
}

func TestHowItEndsAndWhatItSaid(t *testing.T) {
	c, l := shell(t, `echo one; echo >&2; echo two >&2; exit 3`)
	<-c.Exited()
	if err := c.End(0); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(c.Last(), "|"); got != "one|two" || c.How() != "exited with status 3" || l.String() != "one\n\ntwo\n" {
		t.Errorf("it said %q, logged %q and %s", got, l, c.How())
	}
	c, _ = shell(t, `kill -11 $$`)
	<-c.Exited()
	if err := c.End(0); err != nil || c.How() != "was ended by the signal SIGSEGV (segmentation fault)" {
		t.Errorf("%s, %v", c.How(), err)
	}
	c, _ = shell(t, `echo loading; echo "SIGSEGV: segmentation violation"; i=0; while [ $i -lt 100 ]; do i=$((i+1)); echo stack $i; done; echo "gs     0x0"; exit 2`)
	<-c.Exited()
	if err := c.End(0); err != nil || c.Why() != "exited with status 2: SIGSEGV (segmentation violation)" {
		t.Errorf("%s, %v", c.Why(), err)
	}
	c, _ = shell(t, `echo "$ORT_DISABLE_TELEMETRY"; exit 3`)
	<-c.Exited()
	if err := c.End(0); err != nil || c.Why() != "exited with status 3: 1" {
		t.Errorf("the library's telemetry: %s, %v", c.Why(), err)
	}
	c, _ = shell(t, `i=0; while [ $i -lt 100 ]; do i=$((i+1)); echo $i; done; printf end`)
	if err := c.End(time.Minute); err != nil {
		t.Fatal(err)
	}
	if last := c.Last(); len(last) > 40 {
		t.Errorf("%d lines are kept", len(last))
	}
	if _, err := engine.StartChild(engine.ChildOptions{Argv: []string{"/no/such/program"}}); err == nil || !strings.Contains(err.Error(), "start /no/such/program") {
		t.Errorf("no program: %v", err)
	}
}

// End kills a process that ignores SIGTERM, with all that it has started. It does not wait
// for a process that still holds the output open.
func TestNothingIsLeft(t *testing.T) {
	c, l := shell(t, `trap "" TERM; sleep 600 & sleep 601 & echo $!; wait; sleep 602`)
	await(t, "it says nothing", func() bool { return strings.Contains(l.String(), "\n") })
	grandchild, err := strconv.Atoi(strings.TrimSpace(l.String()))
	if err != nil {
		t.Fatal(err)
	}
	await(t, "three processes hold hardly any memory", func() bool { return c.Memory() >= 3<<16 })
	if err := c.End(10 * time.Millisecond); err != nil {
		t.Fatal(err)
	}
	await(t, "a process is left", func() bool { return !alive(grandchild) && !alive(c.PID()) })
}

func TestItLeavesWhenAsked(t *testing.T) {
	c, l := shell(t, `trap "echo bye; exit 0" TERM; echo ready; while :; do sleep 0.01; done`)
	await(t, "it is not ready", func() bool { return strings.Contains(l.String(), "ready") })
	await(t, "it has used no time", func() bool { return c.ProcessorTime() > 0 })
	if err := c.End(time.Minute); err != nil || c.How() != "exited with status 0" || !strings.Contains(l.String(), "bye") {
		t.Errorf("%s, %v, %q", c.How(), err, l)
	}
}

func TestItDiesWithItsParent(t *testing.T) {
	mother := exec.Command(os.Args[0])
	mother.Env = append(os.Environ(), motherEnv+"=1")
	out, err := mother.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := mother.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || !alive(pid) {
		t.Fatalf("the child %q is not alive: %v", line, err)
	}
	_ = mother.Process.Kill()
	_ = mother.Wait()
	await(t, "the child is still alive", func() bool { return !alive(pid) })
}

func TestWhoListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	c, _ := shell(t, "sleep 600")
	defer func() {
		if err := c.End(0); err != nil {
			t.Error(err)
		}
	}()
	if c.Listens(port) {
		t.Error("this process's port is taken for the child's")
	}
	if !c.Listens(1) {
		t.Error("nobody listens there, and that is told apart")
	}
}
