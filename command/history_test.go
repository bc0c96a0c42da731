package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/provider/decisions"
)

// The decisions of one run are there in the next, unless the file is damaged.
func TestHistoryIsKept(t *testing.T) {
	s, r, _ := reside(t, time.Second)
	now := time.Now()
	r.decisions.Add(now, "digits.openfaas-fn", decisions.Deploy, decisions.Fields{Image: "digits:v1", Revision: 7})
	if err := s.stop(func() {}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(r.dir, historyFile)
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the file: %v, %v", info, err)
	}
	said := func() string {
		t.Helper()
		s, r, _ := resideIn(t, r.dir, time.Second)
		defer s.stop(func() {})
		var all []string
		found, _ := r.decisions.Since(0, "", "", 0)
		for _, d := range found {
			all = append(all, d.Text)
		}
		return strings.Join(all, " ")
	}
	if text := said(); !strings.Contains(text, "digits:v1 as revision 7") {
		t.Errorf("the next run knows %q", text)
	}
	write(t, file, "{")
	if text := said(); text != "" {
		t.Errorf("after a damaged file the next run knows %q", text)
	}
}
