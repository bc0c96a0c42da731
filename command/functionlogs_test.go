package command

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	openfaas "github.com/openfaas/faas-provider/logs"
	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster/local/logs"
)

func TestFunctionLogs(t *testing.T) {
	files := &logs.Store{Dir: t.TempDir(), MaxBytes: 1 << 20, Keep: 1}
	file, err := files.Open("echo.dev", "echo-1")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for i := range 2 * pendingLines {
		fmt.Fprintf(file, "2026-11-21T12:%02d:%02dZ line %d\n", i/60, i%60, i)
	}
	var said bytes.Buffer
	f := functionLogs{files: files, log: zerolog.New(&said)}
	at := time.Date(2026, 11, 21, 12, 8, 0, 0, time.UTC)
	messages, err := f.Query(t.Context(), openfaas.Request{Name: "echo", Namespace: "dev", Since: &at})
	if err != nil {
		t.Fatal(err)
	}
	n := 480
	for m := range messages {
		want := openfaas.Message{Name: "echo", Namespace: "dev", Instance: "echo-1", Timestamp: at.Add(time.Duration(n-480) * time.Second), Text: fmt.Sprint("line ", n)}
		if m != want {
			t.Errorf("message %v, want %v", m, want)
		}
		n++
	}
	if n != 2*pendingLines {
		t.Errorf("%d lines", n)
	}
	// Whoever leaves without reading leaves nothing behind.
	ctx, cancel := context.WithCancel(t.Context())
	if messages, err = f.Query(ctx, openfaas.Request{Name: "echo", Namespace: "dev", Follow: true}); err != nil {
		t.Fatal(err)
	}
	<-messages
	cancel()
	for range messages {
	}
	if said.Len() != 0 {
		t.Errorf("logged %s", &said)
	}
	if _, err := f.Query(t.Context(), openfaas.Request{Name: "../x", Namespace: "dev"}); err == nil {
		t.Error("a path was taken for a function")
	}
	// What cannot be read is logged: by then the answer has begun.
	if err := os.Rename(files.Path("echo.dev", "echo-1"), files.Path("echo.dev", "echo-1")+".1"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(files.Path("echo.dev", "echo-1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if messages, err = f.Query(t.Context(), openfaas.Request{Name: "echo", Namespace: "dev"}); err != nil {
		t.Fatal(err)
	}
	for range messages {
	}
	if !strings.Contains(said.String(), "echo.dev") {
		t.Errorf("logged %q", &said)
	}
}
