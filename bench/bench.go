// Package bench measures faas-infer against what it is meant to beat, as ratios
// within one run: the data plane against OpenFaaS' own proxy, the batching
// policies against each other, cold starts and memory. Everything is real: the
// instance server with ONNX Runtime, the provider's own routes, real sockets.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/faas-infer/faas-infer/command/dependent"
	"github.com/faas-infer/faas-infer/instance/python"
	"github.com/faas-infer/faas-infer/load"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/model/zoo"
	"github.com/faas-infer/faas-infer/profiler"
)

// Models prepares and measures model files.
type Models interface {
	Prepare(ctx context.Context, file string) (prepared string, err error)
	Measure(ctx context.Context, file string, maxBatch int, until time.Duration) (prepared string, p *profiler.Profile, err error)
}

// Options are what every bench needs.
type Options struct {
	// Self is the faas-infer program.
	Self string
	// Models prepares what is measured.
	Models Models
	// Log is where progress is told to people.
	Log io.Writer
	// Gateway starts the stock OpenFaaS gateway before a provider and the NATS
	// server at these addresses, with what it writes in dir. Its url is where it
	// serves.
	Gateway func(ctx context.Context, provider, nats, dir string) (url string, stop func(), err error)
}

// subject is a model of the zoo, made ready in a directory of its own, or one that
// Python runs, which has no model but inputs.
type subject struct {
	name, file string
	model      *model.Model
	inputs     []tensor.Info
	dir        string
}

// samples are inputs of one request.
func (s *subject) samples(seed uint64) ([]tensor.Tensor, error) {
	if s.model == nil {
		return python.Sample(s.inputs, 1, seed), nil
	}
	return s.model.SampleInputs(1, seed)
}

// newSubject writes a model of the zoo into a temporary directory; close
// removes it.
func newSubject(name string) (*subject, error) {
	m, err := zoo.Make(name, 1)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "faas-infer-bench-")
	if err != nil {
		return nil, err
	}
	s := &subject{name: name, dir: dir, model: m, file: filepath.Join(dir, "model.onnx")}
	if err := m.WriteFile(s.file); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *subject) close() { os.RemoveAll(s.dir) }

// target makes requests for the subject: several random inputs in turn.
func (s *subject) target(url string) (load.Target, error) {
	var bodies [][]byte
	var length int
	for seed := range uint64(8) {
		inputs, err := s.samples(seed)
		if err != nil {
			return load.Target{}, err
		}
		body, n, err := load.EncodeBinary(inputs)
		if err != nil {
			return load.Target{}, err
		}
		bodies, length = append(bodies, body), n
	}
	header := http.Header{"Content-Type": {"application/octet-stream"}, load.HeaderLength: {strconv.Itoa(length)}}
	return load.Target{Name: s.name, URL: url, Header: header, Body: load.Cycle(bodies...)}, nil
}

// child is a process of this program.
type child struct {
	*dependent.Child
	output strings.Builder
}

// start runs this program with other arguments; it stops in order when this
// process dies.
func (o Options) start(arguments ...string) (*child, error) {
	c := &child{}
	command := exec.Command(o.Self, arguments...)
	command.Stdout, command.Stderr = &c.output, &c.output
	var err error
	if c.Child, err = dependent.Start(command, syscall.SIGTERM); err != nil {
		return nil, fmt.Errorf("start %s: %w", arguments[0], err)
	}
	return c, nil
}

// stop asks the process to leave, and kills it if it does not.
func (c *child) stop() {
	_ = c.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.Exited():
	case <-time.After(20 * time.Second):
		_ = c.Process.Kill()
		<-c.Exited()
	}
}

// answers waits until url answers with 200.
func (c *child) answers(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		status, _, err := get(ctx, http.DefaultClient, url)
		if err == nil && status == http.StatusOK {
			return nil
		}
		select {
		case <-c.Exited():
			return fmt.Errorf("%s exited: %v: %s", strings.Join(c.Args[1:], " "), c.ProcessState, c.output.String())
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w", url, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func get(ctx context.Context, client *http.Client, url string) (status int, body []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	body, err = io.ReadAll(response.Body)
	return response.StatusCode, body, err
}

// freePort is a TCP port of the loopback interface that nobody listens on.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// overUnix is an HTTP client whose every connection goes to one Unix socket.
func overUnix(socket string) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}}}
}

// allGood is an error if any of a run's requests was not answered well.
func allGood(r *load.TargetResult) error {
	if r.Good == r.Requests {
		return nil
	}
	return errors.Join(fmt.Errorf("%s: only %d of %d requests were answered well (%v)", r.Name, r.Good, r.Requests, r.Codes), r.FirstError)
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
