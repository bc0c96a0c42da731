package build

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openfaas/go-sdk/builder"
	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/model/bundle"
)

// victimRoot tells the test's program to build bundles until it is killed.
const victimRoot = "FAAS_INFER_TEST_BUILD_ROOT"

// victim builds one image over and over, of two files that hold the same number.
func victim(root string) {
	h, err := New(Options{Root: root, Secret: []byte(secret), Logger: zerolog.Nop()})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for n := 0; ; n++ {
		number := strconv.Itoa(n)
		body := archive(entry{name: "context/bundle.yaml", text: "name: a\nprocess: cat\n"},
			entry{name: "context/first", text: number}, entry{name: "context/sub/second", text: number}, named("a"))
		if w := post(h, bytes.NewReader(body), sign(body, secret), ""); !strings.Contains(w.Body.String(), `"success"`) {
			fmt.Println(w.Body)
			os.Exit(1)
		}
		fmt.Println(number)
	}
}

// Whenever the builder is killed, the bundle is complete and one of those that were sent,
// and not older than the last one answered.
func TestKilledBuilder(t *testing.T) {
	root := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for round := range 12 {
		c := exec.Command(self)
		c.Env = append(os.Environ(), victimRoot+"="+root)
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		// It is killed at another place in its work each time.
		buffer, answered := make([]byte, 4096), ""
		for strings.Count(answered, "\n") <= round {
			n, err := out.Read(buffer)
			if err != nil {
				t.Fatalf("the builder ended: %v %s", err, answered)
			}
			answered += string(buffer[:n])
		}
		time.Sleep(time.Duration(round) * 700 * time.Microsecond)
		if err := c.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for {
			n, err := out.Read(buffer)
			answered += string(buffer[:n])
			if err != nil {
				break
			}
		}
		c.Wait() // It was killed, which is an error.
		lines := strings.Fields(answered)
		last, err := strconv.Atoi(lines[len(lines)-1])
		if err != nil {
			t.Fatal(answered)
		}
		b, err := bundle.Open(root, "a")
		if err != nil {
			t.Fatal(err)
		}
		first, err1 := os.ReadFile(filepath.Join(b.Dir, "first"))
		second, err2 := os.ReadFile(filepath.Join(b.Dir, "sub/second"))
		if n, err := strconv.Atoi(string(first)); err != nil || err1 != nil || err2 != nil || string(first) != string(second) || n < last || n > last+1 {
			t.Errorf("bundle %q and %q, answered %d: %v %v %v", first, second, last, err, err1, err2)
		}
		if err := bundle.Sweep(root); err != nil {
			t.Error(err)
		}
		nothingLeft(t, root)
	}
}

// Of two builds of one image at once, the bundle is one of them, complete.
func TestBuildsAtOnce(t *testing.T) {
	h, s := serve(t, Options{})
	var done sync.WaitGroup
	for i := range 6 {
		files := map[string]string{"bundle.yaml": "name: a\nprocess: cat\n", "first": strconv.Itoa(i), "second": strconv.Itoa(i)}
		tar := packed(t, folder(t, files), "a")
		done.Go(func() {
			if result, err := client(t, s, secret).Build(tar); err != nil || result.Status != builder.BuildSuccess {
				t.Errorf("%+v, %v", result, err)
			}
		})
	}
	done.Wait()
	first, err1 := os.ReadFile(filepath.Join(h.options.Root, "a/latest/first"))
	second, err2 := os.ReadFile(filepath.Join(h.options.Root, "a/latest/second"))
	if err1 != nil || err2 != nil || !bytes.Equal(first, second) {
		t.Errorf("%q %v, %q %v", first, err1, second, err2)
	}
	nothingLeft(t, h.options.Root)
}
