// Package load generates load: requests at a rate ([Run]) or from a number of clients
// ([RunClosed]). Run measures latency from the intended time of sending, so a server that
// stalls cannot hide its delays. The package is also the command "faas-infer load"; it
// does not deploy anything. Begin reading at [Run].
package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/model"
)

// loadBodies is how many different request bodies a load cycles through.
const loadBodies = 16

// loadFlags are the flags of the load command.
type loadFlags struct {
	target    Target
	options   Options
	poisson   bool
	json      bool
	model     string
	modelName string
	body      string
	content   string
	rows      int
}

// NewCommand returns "faas-infer load", which sends an open loop of requests to one
// function.
func NewCommand() *cobra.Command {
	var f loadFlags
	c := &cobra.Command{
		Use:   "load --url URL",
		Short: "Send a function requests at a fixed rate and measure its answers",
		Long: `load sends requests at their intended times, however slowly earlier ones are
answered, and counts latency from the intended time. Every request that waits for a
stalled server therefore counts.

By default, load sends random inputs for the function's model. It asks the function
for the model's inputs (Open Inference Protocol: GET URL/v2/models/NAME). --model reads
the inputs from an ONNX file instead and uses valid indices for integer inputs. --body
sends a file unchanged.

Ctrl-C ends the sending, and load prints the figures of the requests so far. A second one prints
nothing.`,
		Example: `  faas-infer load --url http://127.0.0.1:8080/function/mnist --rate 200 --duration 20s --poisson --slo 50ms
  faas-infer load --url http://127.0.0.1:8080/function/dssm --model dssm.onnx --rate 500 --json
  faas-infer load --url http://127.0.0.1:8080/function/mnist --body request.json --rate 50`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	f.register(c)
	return c
}

func (f *loadFlags) register(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.target.URL, "url", "", "the function's `URL`")
	flags.StringVar(&f.target.Socket, "socket", "", "Unix socket `path` to send to instead of the URL's host")
	flags.Float64Var(&f.target.Rate, "rate", 100, "requests per second")
	flags.DurationVar(&f.options.Duration, "duration", 20*time.Second, "how long to send requests")
	flags.BoolVar(&f.poisson, "poisson", false, "exponential gaps between requests instead of even ones")
	flags.DurationVar(&f.target.SLO, "slo", 0, "count the answers within this latency")
	flags.DurationVar(&f.options.Timeout, "timeout", 30*time.Second, "how long to wait for an answer")
	flags.IntVar(&f.options.MaxInFlight, "max-in-flight", 4096, "maximum number of unanswered requests; further ones are dropped")
	flags.Uint64Var(&f.options.Seed, "seed", 1, "seed of the arrivals and inputs")
	flags.StringVar(&f.modelName, "model-name", "", "the model's `name` in v2 paths (default the function's name)")
	flags.StringVar(&f.model, "model", "", "take the inputs from this ONNX `file`")
	flags.StringVar(&f.body, "body", "", "send this `file`")
	flags.StringVar(&f.content, "content-type", "application/json", "content type of --body")
	flags.IntVar(&f.rows, "rows", 1, "rows of input in each request")
	flags.BoolVar(&f.json, "json", false, "print one JSON object")
	c.MarkFlagRequired("url")
	c.MarkFlagsMutuallyExclusive("model", "body")
}

func (f *loadFlags) run(c *cobra.Command) error {
	if f.rows < 1 {
		return fmt.Errorf("--rows %d: it must be at least 1", f.rows)
	}
	f.target.Name = f.target.URL
	if f.poisson {
		f.target.Arrivals = Poisson
	}
	if err := f.prepare(c.Context()); err != nil {
		return err
	}
	f.options.Targets = []Target{f.target}
	f.options.Progress = c.ErrOrStderr()
	f.options.Until = c.Context() // The requests in flight get their answers, and the figures are printed.
	result, err := Run(context.WithoutCancel(c.Context()), f.options)
	if err != nil {
		return err
	}
	return cmp.Or(f.print(c.OutOrStdout(), &result.Targets[0]), c.Context().Err())
}

func (f *loadFlags) print(w io.Writer, r *TargetResult) error {
	rep := report.New("load "+f.target.URL, time.Now())
	r.AddTo(rep, "")
	write := rep.Table
	if f.json {
		write = rep.JSON
	}
	if err := write(w); err != nil {
		return err
	}
	if r.Good == 0 {
		return errors.New("no request got a good answer")
	}
	return nil
}

// prepare makes the request bodies and headers.
func (f *loadFlags) prepare(ctx context.Context) error {
	if f.body != "" {
		body, err := os.ReadFile(f.body)
		if err != nil {
			return err
		}
		f.target.Body = Cycle(body)
		f.target.Header = http.Header{"Content-Type": {f.content}}
		return nil
	}
	encode, err := f.encoder(ctx)
	if err != nil {
		return err
	}
	bodies := make([][]byte, loadBodies)
	length := 0
	for i := range bodies {
		// The header is the same for each seed, so its length is, too.
		if bodies[i], length, err = encode(f.options.Seed + uint64(i)); err != nil {
			return err
		}
	}
	f.target.Body = Cycle(bodies...)
	f.target.Header = http.Header{
		"Content-Type": {"application/octet-stream"},
		HeaderLength:   {strconv.Itoa(length)},
	}
	return nil
}

// encoder returns a function that makes a request body from a seed.
func (f *loadFlags) encoder(ctx context.Context) (func(seed uint64) ([]byte, int, error), error) {
	if f.model != "" {
		m, err := model.ReadFile(f.model)
		if err != nil {
			return nil, err
		}
		return func(seed uint64) ([]byte, int, error) {
			inputs, err := m.SampleInputs(f.rows, seed)
			if err != nil {
				return nil, 0, err
			}
			return EncodeBinary(inputs)
		}, nil
	}
	name := f.modelName
	if name == "" {
		var err error
		if name, err = ModelName(f.target.URL); err != nil {
			return nil, fmt.Errorf("%w: give --model-name, --model or --body", err)
		}
	}
	client := f.client()
	defer client.CloseIdleConnections()
	inputs, err := Metadata(ctx, client, f.target.URL, name)
	if err != nil {
		return nil, err
	}
	return func(seed uint64) ([]byte, int, error) { return BinaryBody(inputs, f.rows, seed) }, nil
}

// client returns an HTTP client that connects where the load does.
func (f *loadFlags) client() *http.Client {
	transport := &http.Transport{}
	if f.target.Socket != "" {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", f.target.Socket)
		}
	}
	return &http.Client{Transport: transport, Timeout: f.options.Timeout}
}
