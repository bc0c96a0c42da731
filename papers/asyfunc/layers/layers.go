// Package layers is "faas-infer profile layers", which lists a model's blocks of layers with all that decides
// whether a shadow should hold them. Begin with [LayerOptions.Layers].
package layers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/profile"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/cut"
	"github.com/faas-infer/faas-infer/papers/asyfunc/pairing"
	"github.com/faas-infer/faas-infer/papers/asyfunc/relay"
	"github.com/faas-infer/faas-infer/papers/asyfunc/shadow"
	"github.com/faas-infer/faas-infer/papers/asyfunc/shadow/graph"
	"github.com/faas-infer/faas-infer/profiler/cop"
	"github.com/faas-infer/faas-infer/profiler/operator"
)

// LayerOptions are the flags of "profile layers".
type LayerOptions struct {
	// Batches are the batch sizes to compare, ascending. The first is the base.
	Batches []int
	// Threads are numbers of threads, ascending; none are the powers of two up to this
	// machine's cores.
	Threads []int
	// Tensors is the maximum number of tensors between blocks; 0 is [graph.Tensors].
	Tensors int
	// Database and Prepared are as in [profile.PredictOptions].
	Database, Prepared string
	JSON               bool
}

// NewCommand returns "faas-infer profile layers".
func NewCommand() *cobra.Command {
	var o LayerOptions
	c := &cobra.Command{
		Use:   "layers MODEL|FILE",
		Short: "List a model's blocks of layers: times by batch, weights, activations, output, load",
		Long: `layers divides the model, as the engine runs it, wherever a few tensors hold all that
the rest needs, and lists for each block what decides whether a shadow should hold it: its time
by batch and threads, how much that grows with the batch, its weights, its activations and
output for each request of a batch, and the time to load it. A shadow is an instance that holds
only blocks that compute much and weigh little (AsyFunc).

Times are predicted from the profiles of the operators. Operators that are missing are measured
first, which takes some seconds. The load time is measured: what the block adds when it is cut
out and opened, with the file in memory. At the end stands which blocks a shadow of one core beside
a body of one core would hold.

--batch gives the batches to compare. The columns with a + are the increase over the first.`,
		Example: `  faas-infer profile layers efficientnet-b5
  faas-infer profile layers vgg-16 --batch 2,3,4,5 --threads 1,2 --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return o.run(c.Context(), args[0], c.OutOrStdout()) },
	}
	f := c.Flags()
	f.IntSliceVar(&o.Batches, "batch", []int{2, 3, 4, 5}, "batch sizes to compare, ascending; the first is the base")
	f.IntSliceVar(&o.Threads, "threads", nil, "numbers of threads, ascending (default: the powers of two up to this machine's cores)")
	f.IntVar(&o.Tensors, "tensors", graph.Tensors, "cut where at most that many tensors go on")
	profile.DatabaseFlag(c, &o.Database)
	f.StringVar(&o.Prepared, "prepared", "", "directory of prepared models (default: the user's cache)")
	f.BoolVar(&o.JSON, "json", false, "print one JSON object")
	return c
}

// Bounds of the flags. A block's times are predicted at each batch on each number of threads.
const (
	maxLayerBatch   = 256
	maxLayerThreads = 256
	maxLayerTensors = 64
)

func (o *LayerOptions) check() error {
	for _, list := range []struct {
		flag  string
		of    []int
		least int
		most  int
	}{{"batch", o.Batches, 2, maxLayerBatch}, {"threads", o.Threads, 0, maxLayerThreads}} {
		if len(list.of) < list.least {
			return fmt.Errorf("--%s is %v: give at least %d, such as 2,3,4,5", list.flag, list.of, list.least)
		}
		for i, n := range list.of {
			if n < 1 || n > list.most || i > 0 && n <= list.of[i-1] {
				return fmt.Errorf("--%s is %v: give ascending numbers from 1 to %d", list.flag, list.of, list.most)
			}
		}
	}
	if o.Tensors < 0 || o.Tensors > maxLayerTensors {
		return fmt.Errorf("--tensors is %d: give a number from 1 to %d", o.Tensors, maxLayerTensors)
	}
	return nil
}

// Layers is a model's layer profile (AsyFunc §3.3).
type Layers struct {
	// Model has the blocks; shadow.Choose takes it.
	Model *shadow.Model `json:"model"`
	// Machine is what the times are of. They are predicted.
	Machine string `json:"machine"`
	// Margin is the safety margin of the whole model's time, at the largest batch.
	Margin float64 `json:"margin"`
	// Loads says where load times come from: "measured", or "predicted" where blocks cannot be
	// loaded.
	Loads string `json:"loads"`
	// Undivided says why instances cannot load parts of the model, "" if they can. It is then one
	// block.
	Undivided string `json:"undivided,omitempty"`
	// Passing: a later attempt may be able to load parts. The model is still being prepared, perhaps.
	Passing bool `json:"passing,omitempty"`
	// Batches are those compared.
	Batches []int `json:"batches"`
	// Choices are Φ chosen in several ways.
	Choices  []LayerChoice `json:"choices"`
	transfer shadow.Transfer
	// Graph makes the parts.
	Graph *graph.Graph `json:"-"`
}

// Layers profiles the blocks of the model that an argument names.
func (o *LayerOptions) Layers(ctx context.Context, argument string) (*Layers, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if err := onnxruntime.Load(""); err != nil {
		return nil, err
	}
	models, err := profile.NewSubjects(o.Prepared)
	if err != nil {
		return nil, err
	}
	defer models.Close()
	s, err := models.Get(argument)
	if err != nil {
		return nil, err
	}
	rows, threads := o.rows(), o.threads()
	prediction, err := o.predict(ctx, s.Optimised, rows, threads)
	if err != nil {
		return nil, err
	}
	m, err := model.ReadOutline(s.Prepared.GraphFile())
	if err != nil {
		return nil, err
	}
	c, err := cut.New(m)
	if err != nil {
		return nil, err
	}
	out := &Layers{Machine: report.Machine(), Loads: "predicted", Batches: o.Batches}
	last := &prediction.Configs[len(prediction.Configs)-1]
	out.Margin = last.Margin
	tensors := cmp.Or(o.Tensors, graph.Tensors)
	segments, err := s.Prepared.Segments(tensors)
	if err != nil {
		out.Undivided, out.Passing, tensors = err.Error(), !errors.Is(err, onnxruntime.ErrIndivisible), -1
	}
	out.Graph, err = graph.New(s.Name, c, graph.Options{
		Tensors: tensors, Rows: rows, Threads: threads, Time: nodeTimes(prediction), Load: loads(s),
		Call: prediction.Configs[0].Run.Median / 1000, Own: profile.EngineMemory,
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Name, err)
	}
	out.Model = out.Graph.Model
	if segments != nil {
		if err := out.measureLoads(ctx, segments); err != nil {
			return nil, err
		}
	}
	if out.transfer, err = Crossing(ctx); err != nil { // There may be no directory for the socket, as in a pod.
		out.transfer = pairing.Relayed
	}
	return out, out.choose()
}

// crossings is the number of messages of each size that Crossing measures.
const crossings = 100

// Crossing measures the time of tensors between a body and its shadow on this machine. Nothing computes beside
// the messages: too short a time shows as soon as a pair runs, too long a one never does if it keeps the pair from
// running.
func Crossing(ctx context.Context) (shadow.Transfer, error) {
	trip, perMiB, err := relay.Measure(ctx, crossings)
	if err != nil {
		return shadow.Transfer{}, fmt.Errorf("measure the time between a body and a shadow: %w", err)
	}
	const perMs = float64(time.Millisecond)
	return shadow.Transfer{Fixed: float64(trip) / 2 / perMs, PerMiB: float64(perMiB) / perMs}, nil
}

// measureLoads replaces the predicted load times by measured ones, unless the blocks cannot be loaded
// one by one.
func (l *Layers) measureLoads(ctx context.Context, segments *onnxruntime.Segments) error {
	if segments.Blocks() != len(l.Model.Blocks) {
		return nil
	}
	measured, err := segments.MeasureLoads(ctx)
	if err != nil {
		return ctx.Err() // Some block's tensors have no row for each of a batch, perhaps.
	}
	const perMs = float64(time.Millisecond)
	l.Loads, l.Model.Open = "measured", float64(measured.Segment)/perMs
	for i, took := range measured.Blocks {
		l.Model.Blocks[i].Load = float64(took) / perMs
	}
	return nil
}

// rows are the batches to predict: those compared, and all up to eight, which choices need.
func (o *LayerOptions) rows() []int {
	rows := []int{1, 2, 3, 4, 5, 6, 7, 8}
	rows = append(rows, o.Batches...)
	slices.Sort(rows)
	return slices.Compact(rows)
}

func (o *LayerOptions) threads() []int {
	if len(o.Threads) == 0 {
		return profile.ThreadsUpTo(0)
	}
	if o.Threads[0] != 1 {
		return append([]int{1}, o.Threads...)
	}
	return o.Threads
}

// predict predicts the operators, and first measures those of which too little is known.
func (o *LayerOptions) predict(ctx context.Context, g *operator.Graph, rows, threads []int) (*cop.Prediction, error) {
	if len(g.Unknown) > 0 {
		return nil, fmt.Errorf("%sthe cost of its operators %v %w", profile.Unpredictable, g.Unknown, profile.ErrUnknown)
	}
	file, err := profile.OpenOperators(o.Database)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	p, err := profile.NewPredictor(file.Database()).Predict(g, rows, threads, nil)
	if err != nil || !profile.Unsure(p) {
		return p, err
	}
	if err := profile.FillOperators(ctx, file, []*operator.Graph{g}, profile.BatchesUpTo(rows[len(rows)-1]), threads); err != nil {
		return nil, err
	}
	return profile.NewPredictor(file.Database()).Predict(g, rows, threads, nil)
}

// nodeTimes are the times in ms of a prediction's nodes by name.
func nodeTimes(p *cop.Prediction) func(operator string, rows, threads int) float64 {
	nodes := make(map[string]int, len(p.Graph.Nodes))
	for i, n := range p.Graph.Nodes {
		nodes[n.Name] = i
	}
	return func(name string, rows, threads int) float64 {
		i, ok := nodes[name]
		c, predicted := p.At(rows, threads)
		if !ok || !predicted {
			return 0 // It runs once, when the model is loaded.
		}
		return p.Node(c, i).Median / 1000
	}
}

// loads predicts the load time of a block: the whole model's measured time, half by weights
// and half by operators, because both are read.
func loads(s *profile.Subject) func(weights int64, operators int) float64 {
	seconds := s.Prepared.LoadSeconds[s.Prepared.Format]
	if seconds == 0 {
		seconds = s.Prepared.PlainSeconds
	}
	all, nodes := max(1, s.Optimised.WeightBytes()), max(1, len(s.Optimised.Nodes))
	return func(weights int64, operators int) float64 {
		return 1000 * seconds * (float64(weights)/float64(all) + float64(operators)/float64(nodes)) / 2
	}
}

func (o *LayerOptions) run(ctx context.Context, argument string, out io.Writer) error {
	if err := o.check(); err != nil {
		return err
	}
	l, err := o.Layers(ctx, argument)
	if err != nil {
		return err
	}
	if o.JSON {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(l)
	}
	return l.print(out)
}

// Increase is how many ms longer a block takes at a batch than at the first, on one thread.
func (l *Layers) Increase(block, batch int) float64 {
	m := l.Model
	first := slices.Index(m.Rows, l.Batches[0])
	at := slices.Index(m.Rows, batch)
	ms := m.Blocks[block].Ms[0]
	return ms[at] - ms[first]
}

func (l *Layers) print(out io.Writer) error {
	m := l.Model
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "block\tname\tM MACs\tweights MiB\tactivations MiB/row\tout MiB/row\tload ms\tms at %d\t", l.Batches[0])
	for _, b := range l.Batches[1:] {
		fmt.Fprintf(w, "+ at %d\t", b)
	}
	for _, n := range m.Threads[1:] {
		fmt.Fprintf(w, "ms on %d threads\t", n)
	}
	fmt.Fprintln(w)
	first := slices.Index(m.Rows, l.Batches[0])
	const mib = 1 << 20
	for i, b := range m.Blocks {
		fmt.Fprintf(w, "%d\t%s\t%.1f\t%.2f\t%.2f\t%.3f\t%.2f\t%.2f\t", i, b.Name, float64(b.MACs)/1e6, float64(b.Weights)/mib,
			float64(b.Activations)/mib, float64(b.Out)/mib, b.Load, b.Ms[0][first])
		for _, batch := range l.Batches[1:] {
			fmt.Fprintf(w, "%+.2f\t", l.Increase(i, batch))
		}
		for k := range m.Threads[1:] {
			fmt.Fprintf(w, "%.2f\t", b.Ms[k+1][first])
		}
		fmt.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nTimes are predicted, with a margin of %.0f %%, on one thread unless a column says otherwise; load times are %s, and each part takes %.2f ms beside.\n", 100*l.Margin, l.Loads, m.Open)
	return l.printChoices(out)
}

// LayerChoice is a Φ for a shadow of one core beside a body of one, with weights of its own.
type LayerChoice struct {
	// By says how it was chosen.
	By   string      `json:"by"`
	Pair shadow.Pair `json:"pair"`
	// OfTwins is the part of the requests per second of two whole instances; OfWhole is the
	// memory of the shadow with four rows over that of a whole instance.
	OfTwins float64 `json:"of_twins"`
	OfWhole float64 `json:"of_whole"`
}

// layerReach is the part of two whole instances' requests per second that a lightest shadow
// must have.
const layerReach = 0.9

// choose chooses Φ in three ways. Batches have up to 16 rows, eight for each instance.
func (l *Layers) choose() error {
	m := l.Model
	if len(m.Blocks) == 1 {
		return nil
	}
	o := shadow.Options{Body: 1000, Shadow: 1000, MaxRows: 16, Partial: true, Transfer: l.transfer, Rho: CorePrice()}
	twins, err := m.Pair(m.All(), 1, o)
	if err != nil {
		return err
	}
	add := func(by, unless string, p shadow.Pair, found bool, err error) error {
		if err != nil || len(p.Phi) == 0 {
			return err
		}
		if !found {
			by += unless
		}
		l.Choices = append(l.Choices, LayerChoice{by, p, p.PerSecond / twins.PerSecond, float64(l.ofRows(p.Phi)) / float64(l.ofRows(m.All()))})
		return nil
	}
	p, found, err := shadow.Choose(m, o)
	if err := add("cheapest request", " (bodies alone are cheaper)", p, found, err); err != nil {
		return err
	}
	p, found, err = shadow.Greedy(m, o, shadow.Burst{Loaded: true})
	if err := add("Algorithm 2", "", p, found, err); err != nil {
		return err
	}
	o.Reach = layerReach
	p, found, err = shadow.Choose(m, o)
	return add(fmt.Sprintf("least memory at %.0f %% of twins", 100*layerReach), " (none reaches it)", p, found, err)
}

// ofRows is the memory of an instance with Φ and four rows, in bytes.
func (l *Layers) ofRows(p shadow.Phi) int64 {
	return l.Model.Own + l.Model.Weights(p) + 4*l.Model.Activations(p)
}

// printChoices says which blocks a shadow of one core would hold.
func (l *Layers) printChoices(out io.Writer) error {
	if len(l.Choices) == 0 {
		why := ""
		if l.Undivided != "" {
			why = ": " + l.Undivided
		}
		_, err := fmt.Fprintf(out, "The model cannot be divided, so no shadow can hold a part of it%s.\n", why)
		return err
	}
	fmt.Fprintln(out, "\nA shadow of one core beside a body of one core, with weights of its own:")
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "chosen by\tblocks\tweights MiB\tMiB with 4 rows\tof a whole\tbody + shadow rows\trequests/s\tof twins")
	const mib = 1 << 20
	for _, c := range l.Choices {
		p := c.Pair
		fmt.Fprintf(w, "%s\t%v\t%.1f\t%.0f\t%.0f %%\t%d + %d\t%.1f\t%.0f %%\n", c.By, p.Phi, float64(p.Weights)/mib, float64(l.ofRows(p.Phi))/mib,
			100*c.OfWhole, p.Best.Body, p.Best.Rows-p.Best.Body, p.PerSecond, 100*c.OfTwins)
	}
	return w.Flush()
}

// CorePrice is the price of a GiB in cores: this machine's cores over its memory.
func CorePrice() float64 {
	var total int64
	text, err := os.ReadFile("/proc/meminfo")
	if _, scan := fmt.Sscanf(string(text), "MemTotal: %d kB", &total); errors.Join(err, scan) != nil || total == 0 {
		return 0.25
	}
	return float64(len(profile.ThreadsUpTo(0))) / (float64(total) / (1 << 20))
}
