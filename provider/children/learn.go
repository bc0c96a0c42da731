package children

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/instance/engines"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/provider/latency"
	"github.com/faas-infer/faas-infer/provider/web"
)

var _ latency.Teachable = (*Models)(nil)

// Lesson is what "instance prepare --request" prints: the sizes of the request, if the model runs with
// them, otherwise the status and the text of the answer to it.
type Lesson struct {
	Shapes string `json:"shapes,omitempty"`
	Status int    `json:"status,omitempty"`
	Text   string `json:"text,omitempty"`
}

// Learn implements [latency.Teachable]. The request is read in the child that prepares the model.
func (m *Models) Learn(ctx context.Context, file, name, largest string, r *frame.Request) (shapes string, err error) {
	if engines.IsManifest(file) || bundle.IsCutting(file) {
		return "", errors.New("only an ONNX model of its own takes its sizes from a request")
	}
	fd, err := unix.MemfdCreate("request", unix.MFD_CLOEXEC)
	if err != nil {
		return "", fmt.Errorf("file for the request: %w", err)
	}
	request := os.NewFile(uintptr(fd), "request")
	defer request.Close()
	buffers, _ := frame.EncodeRequests([]frame.Request{*r})
	if _, err := buffers.WriteTo(request); err != nil {
		return "", fmt.Errorf("file for the request: %w", err)
	}
	out, err := m.runBound(ctx, Foreground, boundsOf(Foreground, 0, m.Bytes(file), 0), request, append([]string{"instance", "prepare", "--model", file, "--cache", m.Prepared,
		"--request", inherited, "--name", name}, sizedModels{m, latency.Sizes{Max: largest}}.arguments(file)...)...)
	if errors.Is(err, errDied) || errors.Is(err, latency.ErrPermanent) {
		return "", web.Refuse(http.StatusBadRequest, "the model does not run with the sizes of this request: %v", err)
	}
	if err != nil {
		return "", err
	}
	var l Lesson
	if err := json.Unmarshal(out, &l); err != nil {
		return "", fmt.Errorf("read what the process that tries sizes says: %w", err)
	}
	if l.Status != 0 {
		return "", web.Refuse(l.Status, "%s", l.Text)
	}
	return l.Shapes, nil
}
