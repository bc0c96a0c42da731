package instances

import (
	"context"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/command/commandtest"
	"github.com/faas-infer/faas-infer/instance/copies"
	"github.com/faas-infer/faas-infer/model/content"
)

// An instance without its model waits for the provider to send it. In a directory of copies the next instance finds it,
// and nobody needs to send it.
func TestInstancesReceiveTheirModel(t *testing.T) {
	file, shared := commandtest.ZooModel(t, "mnist", 1), t.TempDir()
	index, err := content.IndexOf(filepath.Dir(file))
	if err != nil {
		t.Fatal(err)
	}
	source := content.Source{Index: index, Dir: filepath.Dir(file)}
	onNode, brought := nodeWith(t, source)
	for i, copied := range []string{"", shared, shared, ""} {
		node := ""
		if i == 3 {
			node = onNode
		}
		own := t.TempDir()
		socket := filepath.Join(t.TempDir(), "s")
		c := commandtest.Command("instance", "--model", filepath.Join(own, filepath.Base(file)), "--max-batch", "4", "--max-rows", "8",
			"--body-limit", "65536", "--listen", "unix://"+socket)
		c.Env = append(c.Env, contentEnv+"="+index.Name(), contentDirEnv+"="+own, copies.Env+"="+copied, copies.ModelEnv+"="+node)
		sending, stop := context.WithCancel(t.Context())
		var sender sync.WaitGroup
		sends := i < 2 || i == 3 && !brought
		if sends {
			client := commandtest.Client(t, socket)
			sender.Go(func() {
				for content.Send(sending, client, "http://instance", source, nil) != nil && sending.Err() == nil {
					time.Sleep(10 * time.Millisecond)
				}
			})
		}
		log := string(commandtest.UntilReady(t, c))
		stop()
		sender.Wait()
		askInstance(t, socket)
		if err := c.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = c.Wait() // Killed.
		if got := strings.Contains(log, "received the model"); got != sends {
			t.Errorf("instance %d says %s", i, log)
		}
	}
}

// nodeWith is the directory of a node's agent with a content. Instances believe in it if root has made it.
func nodeWith(t *testing.T, source content.Source) (dir string, believed bool) {
	t.Helper()
	dir = t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	r, err := content.NewReceiver(dir, source.Index.Name())
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(r)
	defer server.Close()
	var waiting sync.WaitGroup
	waiting.Go(func() {
		if _, err := r.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	})
	if err := content.Send(t.Context(), server.Client(), server.URL, source, nil); err != nil {
		t.Fatal(err)
	}
	waiting.Wait()
	return dir, os.Geteuid() == 0
}
