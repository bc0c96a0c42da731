package infaas

import (
	_ "embed" // the sample texts
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/faas-infer/faas-infer/instance/text"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// minLikeness is the minimum likeness of the answers that two models give to a text if they agree.
const minLikeness = 0.99

// sampleTexts are the texts by which models of texts are judged, one on each line. A bundle has none of its own.
//
//go:embed texts.txt
var sampleTexts string

// texts are the sample texts as rows of a model.
type texts struct {
	reader *text.Reader
	rows   []text.Row
}

// readTexts reads the sample texts for the model of the bundle in a directory. A reranker gets each of them with the
// one behind it.
func readTexts(dir string, inputs, outputs []tensor.Info) (*texts, error) {
	b, err := bundle.OpenDir(dir)
	if err != nil {
		return nil, err
	}
	if b.Text == nil {
		return nil, fmt.Errorf("%s of %s has no field text: its model takes no texts", bundle.ManifestFile, dir)
	}
	inputs = slices.Clone(inputs)
	for i := range inputs {
		inputs[i].Edge = nil // runRows takes the model's own shapes.
	}
	reader, err := text.Open(dir, *b.Text, inputs, outputs, text.Options{})
	if err != nil {
		return nil, err
	}
	t := &texts{reader: reader}
	lines := strings.Split(strings.TrimSpace(sampleTexts), "\n")
	if !reader.Reranks() {
		t.rows, _, err = reader.Texts(lines)
		return t, err
	}
	for i := range lines {
		pair, _, err := reader.Pairs(lines[i], []string{lines[(i+1)%len(lines)]})
		if err != nil {
			return nil, err
		}
		t.rows = append(t.rows, pair...)
	}
	return t, nil
}

// batch returns some of the rows, padded to the longest of them.
func (t *texts) batch(from, to int) ([]tensor.Tensor, error) {
	return t.reader.Inputs(t.rows[from:to], func(size int) []byte { return make([]byte, size) }), nil
}

// answers returns the vectors or the scores of the rows from a position on, as the only output of a model.
func (t *texts) answers(from, to int, out []tensor.Tensor) ([]tensor.Tensor, error) {
	all, err := t.reader.Answers(t.rows[from:to], out)
	if err != nil {
		return nil, err
	}
	answers := tensor.Tensor{Type: tensor.FP32, Shape: []int64{int64(to - from), int64(len(all[0]))}}
	for _, one := range all {
		for _, v := range one {
			if t.reader.Reranks() {
				v = float32(1 / (1 + math.Exp(-float64(v))))
			}
			answers.Data = binary.LittleEndian.AppendUint32(answers.Data, math.Float32bits(v))
		}
	}
	return []tensor.Tensor{answers}, nil
}

// likeness is the cosine of two vectors of a text, or 1 less the difference of two scores; 0 if one is no number.
func (t *texts) likeness(old, fresh []float64) (like float64) {
	if t.reader.Reranks() {
		like = 1 - math.Abs(old[0]-fresh[0])
	} else {
		like = cosine(old, fresh)
	}
	if math.IsNaN(like) {
		return 0
	}
	return like
}

func cosine(old, fresh []float64) float64 {
	var product, a, b float64
	for i := range old {
		product += old[i] * fresh[i]
		a += old[i] * old[i]
		b += fresh[i] * fresh[i]
	}
	return product / math.Sqrt(a*b)
}
