package onnxruntime

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	ort "github.com/yalue/onnxruntime_go"
	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model/onnxpb"
)

// graphFile is the name of the optimised graph's file.
const graphFile = "optimised.onnx"

// GraphFile returns the ONNX file of the graph that the engine really runs: optimised
// for this CPU, with operators of ONNX Runtime's own domains. It is "" if there is none;
// GraphError then has the reason. The file lacks the large weights, so read it with
// model.ReadGraph. The profiler profiles this graph's operators (INFless §3.3), because
// fusion changes them.
func (p Prepared) GraphFile() string {
	path := filepath.Join(p.Dir, graphFile)
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// keepGraph writes the optimised graph into dir. It takes the graph from the packed
// format in dir/packed. If that format could not be written, it optimises the model
// once more.
func keepGraph(plain form, dir string) error {
	from := filepath.Join(dir, string(FormatPacked))
	if _, err := os.Stat(filepath.Join(from, formats[FormatPacked].file)); err != nil {
		if from, err = os.MkdirTemp(dir, ".graph-"); err != nil {
			return err
		}
		defer os.RemoveAll(from)
		save := formats[FormatPacked].save
		if err := saveOptimised(plain, filepath.Join(from, formats[FormatPacked].file), save[:2]); err != nil {
			return fmt.Errorf("the optimised graph: %w", err)
		}
	}
	b, err := os.ReadFile(filepath.Join(from, formats[FormatPacked].file))
	if err != nil {
		return err
	}
	p := new(onnxpb.ModelProto)
	if err := proto.Unmarshal(b, p); err != nil {
		return fmt.Errorf("the optimised graph: %w", err)
	}
	for _, t := range p.GetGraph().GetInitializer() {
		if err := inline(t, from); err != nil {
			return fmt.Errorf("weight %q of the optimised graph: %w", t.GetName(), err)
		}
	}
	if b, err = proto.Marshal(p); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, graphFile), b, 0o644)
}

// maxInlined is the maximum size in bytes of a tensor that keepGraph puts into the graph.
const maxInlined = 32 << 10

// inline reads a tensor of integers or booleans from the weights' file into the graph.
// Operators may take them as parameters (indices, sizes).
func inline(t *onnxpb.TensorProto, dir string) error {
	kind := onnxpb.TensorProto_DataType(t.GetDataType())
	if t.GetDataLocation() != onnxpb.TensorProto_EXTERNAL || kind != onnxpb.TensorProto_INT64 && kind != onnxpb.TensorProto_INT32 && kind != onnxpb.TensorProto_BOOL {
		return nil
	}
	fields := map[string]string{}
	for _, e := range t.GetExternalData() {
		fields[e.GetKey()] = e.GetValue()
	}
	offset, _ := strconv.ParseInt(fields["offset"], 10, 64)
	length, err := strconv.ParseInt(fields["length"], 10, 64)
	if err != nil || length > maxInlined {
		return nil
	}
	f, err := os.Open(filepath.Join(dir, filepath.Base(fields["location"])))
	if err != nil {
		return err
	}
	defer f.Close()
	t.RawData = make([]byte, length)
	if _, err := io.ReadFull(io.NewSectionReader(f, offset, length), t.RawData); err != nil {
		return err
	}
	t.DataLocation, t.ExternalData = nil, nil
	return nil
}

// SaveExtended writes to path the graph of the model in an ONNX file as a GPU runs it: with the
// optimiser's fusions, but not with the layouts and operators that only CPUs have.
func SaveExtended(file, path string) error {
	plain, err := formOf(Options{Model: file})
	if err != nil {
		return err
	}
	if err := saveGraph(plain, path, ort.GraphOptimizationLevelEnableExtended, onlyCPU); err != nil {
		return fmt.Errorf("the graph for a GPU: %w", err)
	}
	return nil
}

// onlyCPU leaves out the fusions that the CUDA provider has no operators for.
var onlyCPU = []setting{{"optimization.disable_specified_optimizers", "GemmActivationFusion"}}

// saveOptimised optimises the model for this CPU and writes it to path.
func saveOptimised(plain form, path string, save []setting) error {
	return saveGraph(plain, path, ort.GraphOptimizationLevelEnableAll, save)
}

// saveGraph optimises the model up to a level and writes it to path.
func saveGraph(plain form, path string, level ort.GraphOptimizationLevel, save []setting) error {
	plain.level, plain.settings, plain.save = level, save, path
	e, err := open(plain, 1)
	if err != nil {
		return err
	}
	return e.Close()
}
