// Package textmodeltest makes small models that take texts, for tests: folders as sentence-transformers writes them,
// with a graph that ONNX Runtime runs. Begin with [Lay] and [Graph].
package textmodeltest

import (
	"encoding/binary"
	"maps"
	"math"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model/onnxpb"
)

// Graph says how a small model differs from a BERT of 6 tokens, 16 positions and 2 types, with an output for each token.
type Graph struct {
	Rows, Positions, Types int64
	// Inputs are all but input_ids. The output has three dimensions, or two with Pooled. Labels are those of a classifier.
	Inputs []string
	Pooled bool
	Labels int64
	// Roberta: the positions are counted from the ids. Fixed is the length of the input, 0 for any. Kind is the type of
	// the inputs, 0 for INT64.
	Roberta bool
	Fixed   int64
	Kind    onnxpb.TensorProto_DataType
}

const width = 4

// Write writes the model to a file.
func (g Graph) Write(t testing.TB, file string) {
	t.Helper()
	if g.Rows == 0 {
		g.Rows = 6
	}
	if g.Positions == 0 {
		g.Positions = 16
	}
	if g.Types == 0 {
		g.Types = 2
	}
	if g.Kind == 0 {
		g.Kind = onnxpb.TensorProto_INT64
	}
	if g.Inputs == nil {
		g.Inputs = []string{"attention_mask", "token_type_ids"}
	}
	b := &onnxpb.GraphProto{Name: proto.String("small")}
	length := &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: "sequence"}}
	if g.Fixed > 0 {
		length = dim(g.Fixed)
	}
	for _, name := range append([]string{"input_ids"}, g.Inputs...) {
		b.Input = append(b.Input, value(name, g.Kind, named("batch"), length))
	}
	weight(b, "embeddings.word_embeddings.weight", g.Rows)
	weight(b, "embeddings.position_embeddings.weight", g.Positions)
	weight(b, "embeddings.token_type_embeddings.weight", g.Types)
	node(b, "Gather", "words", "embeddings.word_embeddings.weight", "input_ids")
	if g.Roberta {
		node(b, "CumSum", "places", "input_ids", integer(b, "axis", 1))
		node(b, "Gather", "at", "embeddings.position_embeddings.weight", "places")
	} else {
		node(b, "Shape", "shape", "input_ids")
		node(b, "Gather", "n", "shape", integer(b, "1", 1))
		node(b, "Range", "places", integer(b, "0", 0), "n", "1")
		node(b, "Gather", "at", "embeddings.position_embeddings.weight", "places")
	}
	node(b, "Add", "sum", "words", "at")
	last := "sum"
	for _, name := range g.Inputs {
		if name == "token_type_ids" {
			node(b, "Gather", "typed", "embeddings.token_type_embeddings.weight", name)
			node(b, "Add", "sum2", "sum", "typed")
			last = "sum2"
		}
	}
	g.end(b, last)
	opset := &onnxpb.OperatorSetIdProto{Domain: proto.String(""), Version: proto.Int64(13)}
	text, err := proto.Marshal(&onnxpb.ModelProto{IrVersion: proto.Int64(8), Graph: b, OpsetImport: []*onnxpb.OperatorSetIdProto{opset}})
	if err == nil {
		err = os.MkdirAll(filepath.Dir(file), 0o755)
	}
	if err == nil {
		err = os.WriteFile(file, text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// end adds the outputs.
func (g Graph) end(b *onnxpb.GraphProto, last string) {
	const float = onnxpb.TensorProto_FLOAT
	switch {
	case g.Labels > 0:
		mean(b, "mean", last)
		b.Initializer = append(b.Initializer, floats("classifier.weight", width, g.Labels))
		node(b, "MatMul", "logits", "mean", "classifier.weight")
		b.Output = append(b.Output, value("logits", float, named("batch"), dim(g.Labels)))
	case g.Pooled:
		mean(b, "sentence_embedding", last)
		b.Output = append(b.Output, value("sentence_embedding", float, named("batch"), dim(width)))
	default:
		node(b, "Identity", "last_hidden_state", last)
		b.Output = append(b.Output, value("last_hidden_state", float, named("batch"), named("sequence"), dim(width)))
	}
}

func mean(b *onnxpb.GraphProto, out, in string) {
	n := node(b, "ReduceMean", out, in)
	kind := onnxpb.AttributeProto_INTS
	none := onnxpb.AttributeProto_INT
	n.Attribute = []*onnxpb.AttributeProto{
		{Name: proto.String("axes"), Type: &kind, Ints: []int64{1}},
		{Name: proto.String("keepdims"), Type: &none, I: proto.Int64(0)},
	}
}

func dim(n int64) *onnxpb.TensorShapeProto_Dimension {
	return &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: n}}
}

func named(name string) *onnxpb.TensorShapeProto_Dimension {
	return &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: name}}
}

func value(name string, kind onnxpb.TensorProto_DataType, dims ...*onnxpb.TensorShapeProto_Dimension) *onnxpb.ValueInfoProto {
	of := &onnxpb.TypeProto_Tensor{ElemType: proto.Int32(int32(kind)), Shape: &onnxpb.TensorShapeProto{Dim: dims}}
	return &onnxpb.ValueInfoProto{Name: proto.String(name), Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{TensorType: of}}}
}

func node(b *onnxpb.GraphProto, kind, out string, in ...string) *onnxpb.NodeProto {
	n := &onnxpb.NodeProto{Name: proto.String("/" + out), OpType: proto.String(kind), Input: in, Output: []string{out}}
	b.Node = append(b.Node, n)
	return n
}

func weight(b *onnxpb.GraphProto, name string, rows int64) {
	b.Initializer = append(b.Initializer, floats(name, rows, width))
}

func floats(name string, rows, columns int64) *onnxpb.TensorProto {
	var raw []byte
	for i := range rows * columns {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(float32(i%7)-3))
	}
	return &onnxpb.TensorProto{Name: proto.String(name), DataType: proto.Int32(int32(onnxpb.TensorProto_FLOAT)),
		Dims: []int64{rows, columns}, RawData: raw}
}

// integer adds a constant without dimensions.
func integer(b *onnxpb.GraphProto, name string, n int64) string {
	raw := binary.LittleEndian.AppendUint64(nil, uint64(n))
	b.Initializer = append(b.Initializer, &onnxpb.TensorProto{Name: proto.String(name),
		DataType: proto.Int32(int32(onnxpb.TensorProto_INT64)), RawData: raw})
	return name
}

// Tokenizer is a tokenizer.json with 6 tokens.
const Tokenizer = `{"version":"1.0","truncation":null,"padding":null,"added_tokens":[
 {"id":0,"content":"[PAD]","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true},
 {"id":2,"content":"[CLS]","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true},
 {"id":3,"content":"[SEP]","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}],
 "normalizer":{"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,"strip_accents":null,"lowercase":true},
 "pre_tokenizer":{"type":"BertPreTokenizer"},"decoder":null,
 "post_processor":{"type":"BertProcessing","sep":["[SEP]",3],"cls":["[CLS]",2]},
 "model":{"type":"WordPiece","unk_token":"[UNK]","continuing_subword_prefix":"##","max_input_chars_per_word":100,
 "vocab":{"[PAD]":0,"[UNK]":1,"[CLS]":2,"[SEP]":3,"a":4,"b":5}}}`

// Files are those of a small sentence-transformers' folder, beside its model.
var Files = map[string]string{
	"tokenizer.json":        Tokenizer,
	"tokenizer_config.json": `{"model_max_length": 512, "pad_token": "[PAD]"}`,
	"config.json":           `{"architectures": ["BertModel"], "model_type": "bert", "max_position_embeddings": 16, "vocab_size": 6}`,
	"modules.json": `[{"path": "", "type": "sentence_transformers.models.Transformer"},
		{"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
		{"path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}]`,
	"1_Pooling/config.json":     `{"pooling_mode_cls_token": false, "pooling_mode_mean_tokens": true, "pooling_mode_max_tokens": false}`,
	"sentence_bert_config.json": `{"max_seq_length": 8, "do_lower_case": false}`,
}

// Lay writes a folder of [Files], some of them replaced; "" removes one. It has no model.
func Lay(t testing.TB, changed map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	all := maps.Clone(Files)
	maps.Copy(all, changed)
	for name, text := range all {
		if text == "" {
			continue
		}
		file := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(file), 0o755)
		if err == nil {
			err = os.WriteFile(file, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
