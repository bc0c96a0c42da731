package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/faas-infer/faas-infer/model/savedmodel"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// shownModel is the output of "model show --json" for a SavedModel.
type shownModel struct {
	Name       string        `json:"name"`
	Signature  string        `json:"signature"`
	Signatures []string      `json:"signatures"`
	Inputs     []tensor.Info `json:"inputs"`
	Outputs    []tensor.Info `json:"outputs"`
}

// showSaved prints a signature of the SavedModel in a directory.
func showSaved(w io.Writer, dir, signature string, asJSON bool) error {
	m, err := savedmodel.Read(dir, signature)
	if errors.Is(err, savedmodel.ErrSignature) {
		return fmt.Errorf("%w (--signature)", err)
	}
	if err != nil {
		return err
	}
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(shownModel{m.Name(), m.Signature(), m.Signatures(), m.Inputs(), m.Outputs()})
	}
	fmt.Fprintf(w, "%s: signature %s of %s\n", m.Name(), m.Signature(), strings.Join(m.Signatures(), ", "))
	for _, v := range m.Inputs() {
		fmt.Fprintf(w, "input       %s %s %s\n", v.Name, v.Type, dimensions(v.Shape))
	}
	for _, v := range m.Outputs() {
		fmt.Fprintf(w, "output      %s %s %s\n", v.Name, v.Type, dimensions(v.Shape))
	}
	fmt.Fprintf(w, "operators   and GFLOPs: faas-infer model convert %s %s.onnx, then model show %s.onnx\n", dir, m.Name(), m.Name())
	return nil
}
