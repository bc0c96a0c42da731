package instances

import (
	"context"
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
	for i, copied := range []string{"", shared, shared} {
		own := t.TempDir()
		socket := filepath.Join(t.TempDir(), "s")
		c := commandtest.Command("instance", "--model", filepath.Join(own, filepath.Base(file)), "--max-batch", "4", "--max-rows", "8",
			"--body-limit", "65536", "--listen", "unix://"+socket)
		c.Env = append(c.Env, contentEnv+"="+index.Name(), contentDirEnv+"="+own, copies.Env+"="+copied)
		sending, stop := context.WithCancel(t.Context())
		var sender sync.WaitGroup
		if i < 2 {
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
		if got := strings.Contains(log, "received the model"); got != (i < 2) {
			t.Errorf("instance %d says %s", i, log)
		}
	}
}
