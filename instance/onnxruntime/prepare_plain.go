package onnxruntime

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/onnxpb"
)

// writePlain puts the original model into dir, with the files of its weights beside it under
// the names that the model gives them.
func writePlain(original form, dir string) error {
	to := filepath.Join(dir, formats[FormatPlain].file)
	if original.data != nil {
		return writeAdapted(original, dir, to)
	}
	if err := keepFile(original.path, to); err != nil {
		return err
	}
	m, err := model.ReadOutline(original.path)
	if err != nil {
		return err
	}
	for _, name := range m.ExternalFiles() {
		if name == filepath.Base(original.path) {
			continue // An outline has its large weights there.
		}
		if _, taken := formats[Format(strings.Split(name, "/")[0])]; taken || name == manifestFile || name == graphFile {
			return fmt.Errorf("the weights are in the file %s, a name that a prepared model uses itself; rename it", name)
		}
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := keepFile(filepath.Join(filepath.Dir(original.path), name), to); err != nil {
			return err
		}
	}
	return nil
}

// writeAdapted writes the graph of an adapted model to a file in dir. Its weights are still in
// the model's own files, which it keeps beside it under other names: one may be that of the graph.
func writeAdapted(original form, dir, to string) error {
	p := new(onnxpb.ModelProto)
	if err := proto.Unmarshal(original.data, p); err != nil {
		return err
	}
	kept := make(map[string]bool)
	for _, t := range p.GetGraph().GetInitializer() {
		for _, e := range t.GetExternalData() {
			if e.GetKey() != "location" {
				continue
			}
			from, name := e.GetValue(), "weights-"+strings.ReplaceAll(e.GetValue(), "/", "-")
			if !kept[name] {
				if err := keepFile(filepath.Join(original.path, from), filepath.Join(dir, name)); err != nil {
					return err
				}
			}
			kept[name] = true
			e.Value = proto.String(name)
		}
	}
	data, err := proto.Marshal(p)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o644)
}

// keepFile copies a file, or makes a hard link to a large one: its copy would take seconds.
func keepFile(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	info, err := source.Stat()
	if err != nil {
		return err
	}
	if info.Size() >= manyWeights && os.Link(from, to) == nil {
		return nil // Otherwise it is on another file system.
	}
	target, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	if _, err := io.Copy(target, source); err != nil {
		target.Close()
		return err
	}
	return target.Close()
}
