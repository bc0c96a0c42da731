package protocol

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// classes returns an output's parameter classification, 0 if it has none. It refuses the other
// parameters as check does.
func (p *parameters) classes(info tensor.Info) (int, error) {
	others := *p
	others.Classification = nil
	if err := others.check(); err != nil || p.Classification == nil {
		return 0, err
	}
	var n int
	if err := json.Unmarshal(p.Classification, &n); err != nil || n < 1 {
		return 0, fmt.Errorf("classification is %.40s; it must be the number of classes, at least 1", p.Classification)
	}
	switch {
	case info.Type == tensor.Bool || info.Type == tensor.Bytes:
		return 0, fmt.Errorf("it is %s; classification needs numbers", info.Type)
	case info.Edge != nil && info.Edge.Axis > 0:
		return 0, fmt.Errorf("it has the shape %v with its batch at %d; classification needs the batch first",
			info.Edge.Shape, info.Edge.Axis)
	}
	return n, nil
}

// classify replaces the outputs that are wanted as classes. Each row becomes the strings
// "value:index" or "value:index:label" of its highest elements, the highest first. An output without
// a batch dimension is one row, whose classes have no batch dimension either. labels are the classes'
// names by their index.
func classify(
	infos []tensor.Info, labels []string, wanted []wantedOutput, outputs []tensor.Tensor,
) ([]tensor.Tensor, error) {
	cloned := false
	for _, w := range wanted {
		if w.classes == 0 {
			continue
		}
		if !cloned {
			outputs, cloned = slices.Clone(outputs), true
		}
		t := outputs[w.at]
		rows, size := 1, t.Type.Size()
		edge := infos[w.at].Edge
		if edge == nil || edge.Axis == 0 {
			rows = int(t.Shape[0])
		}
		elements := len(t.Data) / size / rows
		classes := min(w.classes, elements)
		classified := tensor.Tensor{Name: t.Name, Type: tensor.Bytes, Shape: []int64{int64(rows), int64(classes)}}
		if edge != nil && edge.Axis < 0 {
			classified.Shape = []int64{int64(classes)}
		}
		for row := range rows {
			for _, at := range highest(t.Type, t.Data[row*elements*size:(row+1)*elements*size])[:classes] {
				classified.Data = tensor.AppendString(classified.Data, class(labels, t.Type, t.Data[(row*elements+at)*size:], at))
			}
		}
		outputs[w.at] = classified
	}
	return outputs, nil
}

// highest returns the positions of a row's elements, the highest first. Equal elements keep their
// order, and those that are no numbers come last.
func highest(kind tensor.Type, row []byte) []int {
	values := make([]float64, len(row)/kind.Size())
	order := make([]int, len(values))
	for i := range values {
		order[i] = i
		if values[i] = kind.Number(row[i*kind.Size():]); math.IsNaN(values[i]) {
			values[i] = math.Inf(-1)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(values[b], values[a]) })
	return order
}

// class writes one class as Triton does: a real number has six digits after its point.
func class(labels []string, kind tensor.Type, element []byte, at int) string {
	digits := 0
	if kind == tensor.FP16 || kind == tensor.BF16 || kind == tensor.FP32 || kind == tensor.FP64 {
		digits = 6
	}
	text := strconv.FormatFloat(kind.Number(element), 'f', digits, 64) + ":" + strconv.Itoa(at)
	if at < len(labels) && labels[at] != "" {
		text += ":" + labels[at]
	}
	return text
}
