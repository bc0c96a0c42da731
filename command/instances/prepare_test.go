package instances

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/command/profile"
	"github.com/faas-infer/faas-infer/model/zoo"
)

// anonymous returns the anonymous memory of this process' children in bytes, which the kernel cannot take back.
func anonymous() (bytes int64) {
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for _, pid := range strings.Fields(string(text)) {
			status, _ := os.ReadFile(filepath.Join("/proc", pid, "status"))
			if _, after, ok := strings.Cut(string(status), "RssAnon:"); ok {
				var kib int64
				if _, err := fmt.Sscan(after, &kib); err == nil {
					bytes += kib << 10
				}
			}
		}
	}
	return bytes
}

// Preparing apart takes no more memory than an instance must have before it begins, less 64 MiB for the instance
// itself: the kernel would kill it.
func TestMemoryOfPreparing(t *testing.T) {
	m, err := zoo.Make("resnet-20", 1)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "model.onnx")
	if err := m.WriteFile(file); err != nil {
		t.Fatal(err)
	}
	size, err := weightOf(file)
	if err != nil {
		t.Fatal(err)
	}
	most, bound := int64(0), leanTimes*size+leanMore-(64<<20)
	for range 2 {
		done := make(chan error, 1)
		go func() {
			_, err := PrepareApart("", profile.SizeFlags{})(t.Context(), file, t.TempDir())
			done <- err
		}()
		for look := time.NewTicker(2 * time.Millisecond); ; {
			select {
			case <-look.C:
				most = max(most, anonymous())
				continue
			case err = <-done:
				look.Stop()
			}
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if t.Logf("%d MiB, at most %d", most>>20, bound>>20); most > bound || most == 0 {
		t.Errorf("preparing takes %d MiB, more than %d MiB", most>>20, bound>>20)
	}
}
